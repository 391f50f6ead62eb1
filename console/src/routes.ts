/** Which page stands at which address. Each is loaded when somebody goes there. */
import type { Component } from "svelte";
import wrap from "svelte-spa-router/wrap";

import Skeleton from "./lib/Skeleton.svelte";
import Unknown from "./lib/Unknown.svelte";

type Page = () => Promise<{ default: Component<any> }>;

const page = (asyncComponent: Page) => wrap({ asyncComponent, loadingComponent: Skeleton });

export const routes = {
  "/": page(() => import("./features/start/Start.svelte")),
  // The link of the first user, when somebody is signed in.
  "/welcome": page(() => import("./features/start/Start.svelte")),
  "/connect": page(() => import("./features/start/Connect.svelte")),
  "/devices": page(() => import("./features/devices/Devices.svelte")),
  "/devices/:id": page(() => import("./features/devices/Device.svelte")),
  "/dashboards": page(() => import("./features/dashboards/Dashboards.svelte")),
  "/dashboards/:id": page(() => import("./features/dashboards/Dashboard.svelte")),
  "/flows": page(() => import("./features/flows/Flows.svelte")),
  "/flows/new": page(() => import("./features/flows/Editor.svelte")),
  "/flows/:id": page(() => import("./features/flows/Editor.svelte")),
  "/products": page(() => import("./features/products/Products.svelte")),
  "/products/:model": page(() => import("./features/products/Product.svelte")),
  "/templates": page(() => import("./features/products/Templates.svelte")),
  "/rps": page(() => import("./features/products/Rps.svelte")),
  "/entities": page(() => import("./features/entities/Entities.svelte")),
  "/entities/tags": page(() => import("./features/entities/Tags.svelte")),
  "/entities/:id": page(() => import("./features/entities/Entity.svelte")),
  "/integrations": page(() => import("./features/integrations/Integrations.svelte")),
  "/integrations/:id": page(() => import("./features/integrations/Integration.svelte")),
  "/credentials": page(() => import("./features/integrations/Credentials.svelte")),
  "/alarms": page(() => import("./features/alarms/Alarms.svelte")),
  "/alarms/rules": page(() => import("./features/alarms/AlarmRules.svelte")),
  "/alarms/notifications": page(() => import("./features/alarms/Notifications.svelte")),
  "/events": page(() => import("./features/events/Events.svelte")),
  "/fleet/groups": page(() => import("./features/fleet/Groups.svelte")),
  "/fleet/places": page(() => import("./features/fleet/Places.svelte")),
  "/fleet/selection": page(() => import("./features/fleet/Selection.svelte")),
  "/fleet/imports": page(() => import("./features/fleet/Imports.svelte")),
  "/fleet/imports/:id": page(() => import("./features/fleet/Import.svelte")),
  "/people/users": page(() => import("./features/people/Users.svelte")),
  "/people/roles": page(() => import("./features/people/Roles.svelte")),
  "/people/roles/:id": page(() => import("./features/people/Role.svelte")),
  "/applications": page(() => import("./features/applications/Applications.svelte")),
  "/audit": page(() => import("./features/audit/Audit.svelte")),
  "/system": page(() => import("./features/system/System.svelte")),
  "/account": page(() => import("./features/account/Account.svelte")),
  "*": Unknown,
};
