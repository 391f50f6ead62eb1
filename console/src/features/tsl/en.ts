export const en = {
  "tsl.true": "On",
  "tsl.false": "Off",
  "tsl.element": "Add an element",
  "tsl.remove": "Remove {name}",
  "tsl.size": "Size",
};
