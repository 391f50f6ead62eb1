/** Which functions open which page: one table for the router, the menu and the command palette. */

/** A code that no role has, so that only super-admins see the page. */
const SUPER_ADMINS = ["super_admin"];
const ALARM_READERS = ["device.view", "dashboard.view", "dashboard.edit"];
const PRODUCT_READERS = ["product.view", "product.manage"];
/** The value of an entity can be read with any of these. */
const VALUE_READERS = ["dashboard.edit", "dashboard.view", "device.view", "workflow.add", "workflow.edit"];

/** Function codes by route, of which one is enough; an empty list lets every user open the page. */
export const PAGES: Readonly<Record<string, readonly string[]>> = {
  "/": [],
  "/welcome": [],
  "/connect": ["device.add"],
  "/devices": ["device.view"],
  "/devices/:id": ["device.view"],
  "/dashboards": ["dashboard.view"],
  "/dashboards/:id": ["dashboard.view", "device.view"],
  "/flows": ["workflow.view"],
  "/flows/new": ["workflow.add"],
  "/flows/:id": ["workflow.view"],
  "/products": PRODUCT_READERS,
  "/products/new": ["product.manage"],
  "/products/:model": PRODUCT_READERS,
  "/templates": PRODUCT_READERS,
  "/rps": PRODUCT_READERS,
  "/entities": ["entity_data.view"],
  "/entities/tags": ["entity_data.view", "entity_tag.view", "entity_tag.manage"],
  "/entities/:id": VALUE_READERS,
  "/integrations": ["integration.view"],
  "/integrations/:id": ["integration.view", "device.add"],
  "/credentials": ["credentials.view", "credentials.edit"],
  "/alarms": ALARM_READERS,
  "/alarms/rules": ALARM_READERS,
  "/alarms/notifications": ALARM_READERS,
  "/events": ["entity_data.view"],
  "/fleet/groups": ["device.view"],
  "/fleet/places": ["device.view"],
  "/fleet/selection": ["device.edit", "device.delete"],
  "/fleet/imports": ["device.view"],
  "/fleet/imports/:id": ["device.add"],
  "/people/users": SUPER_ADMINS,
  "/people/roles": SUPER_ADMINS,
  "/people/roles/:id": SUPER_ADMINS,
  "/applications": SUPER_ADMINS,
  "/audit": SUPER_ADMINS,
  "/system": SUPER_ADMINS,
  "/settings": SUPER_ADMINS,
  "/account": [],
};

/** Return whether a user may open a route; `may` checks a function. A route without a row is closed. */
export function allows(route: string, may: (code: string) => boolean): boolean {
  const codes = PAGES[route] ?? SUPER_ADMINS;
  return codes.length === 0 || codes.some(may);
}
