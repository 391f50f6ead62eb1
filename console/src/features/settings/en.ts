export const en = {
  "settings.title": "Settings",
  "settings.commands": "Commands",
  "settings.viewers": "Viewers may send commands to devices",
  "settings.viewers.text":
    "When this is on, users who may only view devices, dashboards or integrations can also set values and call services. When it is off, a user needs one of these permissions: {permissions}. The change applies immediately.",
  "settings.saved": "Settings saved.",
  "settings.notice":
    "A new setting controls whether users who may only view devices can also send commands to them. It is on for your tenant, so nothing has changed. You can turn it off on the Settings page.",
  "settings.notice.open": "Open settings",
  "settings.notice.dismiss": "Dismiss",
  "page.no-access": "You do not have access to this page",
  "page.no-access.text": "Your roles do not include this page. Ask a super-admin for access.",
  "page.no-access.back": "Go to the overview",
};
