export const en = {
  "palette.open": "Go to",
  "palette.title": "Go to a page, device, value, dashboard or flow",
  "palette.type": "Type the name of a page, device, value, dashboard or flow",
  "palette.results": "Results",
  "palette.kind.page": "Pages",
  "palette.kind.device": "Devices",
  "palette.kind.value": "Values",
  "palette.kind.dashboard": "Dashboards",
  "palette.kind.flow": "Flows",
  "keys.title": "Keyboard shortcuts",
  "keys.search": "Search on this page",
  "keys.close": "Close the open dialog or menu",
};
