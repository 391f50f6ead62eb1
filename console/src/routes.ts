/** Pages by address. A page is loaded when it is opened. */
import type { Component } from "svelte";

import { session } from "./api/session.svelte";
import type { Route } from "./lib/router.svelte";
import Skeleton from "./lib/Skeleton.svelte";
import Unknown from "./lib/Unknown.svelte";

type Page = () => Promise<{ default: Component<any> }>;

const NoAccess: Page = () => import("./lib/NoAccess.svelte");

/** The page of a route, or a notice for users who may not open it. The router asks again at every visit. */
const guarded = (route: string, page: Page, props: Record<string, unknown>): Route => ({
  asyncComponent: () => (session.mayOpen(route) ? page() : NoAccess()),
  loadingComponent: Skeleton,
  props,
});

const LOADERS: Record<string, Page> = {
  "/": () => import("./features/start/Start.svelte"),
  // The link of the first user, when somebody is signed in.
  "/welcome": () => import("./features/start/Start.svelte"),
  "/connect": () => import("./features/start/Connect.svelte"),
  "/devices": () => import("./features/devices/Devices.svelte"),
  "/devices/:id": () => import("./features/devices/Device.svelte"),
  "/dashboards": () => import("./features/dashboards/Dashboards.svelte"),
  "/dashboards/:id": () => import("./features/dashboards/Dashboard.svelte"),
  "/flows": () => import("./features/flows/Flows.svelte"),
  "/flows/new": () => import("./features/flows/Editor.svelte"),
  "/flows/:id": () => import("./features/flows/Editor.svelte"),
  "/products": () => import("./features/products/Products.svelte"),
  "/products/new": () => import("./features/products/Product.svelte"),
  "/products/:model": () => import("./features/products/Product.svelte"),
  "/templates": () => import("./features/products/Templates.svelte"),
  "/rps": () => import("./features/products/Rps.svelte"),
  "/entities": () => import("./features/entities/Entities.svelte"),
  "/entities/tags": () => import("./features/entities/Tags.svelte"),
  "/entities/:id": () => import("./features/entities/Entity.svelte"),
  "/integrations": () => import("./features/integrations/Integrations.svelte"),
  "/integrations/:id": () => import("./features/integrations/Integration.svelte"),
  "/credentials": () => import("./features/integrations/Credentials.svelte"),
  "/alarms": () => import("./features/alarms/Alarms.svelte"),
  "/alarms/rules": () => import("./features/alarms/AlarmRules.svelte"),
  "/alarms/notifications": () => import("./features/alarms/Notifications.svelte"),
  "/events": () => import("./features/events/Events.svelte"),
  "/fleet/groups": () => import("./features/fleet/Groups.svelte"),
  "/fleet/places": () => import("./features/fleet/Places.svelte"),
  "/fleet/selection": () => import("./features/fleet/Selection.svelte"),
  "/fleet/imports": () => import("./features/fleet/Imports.svelte"),
  "/fleet/imports/:id": () => import("./features/fleet/Import.svelte"),
  "/people/users": () => import("./features/people/Users.svelte"),
  "/people/roles": () => import("./features/people/Roles.svelte"),
  "/people/roles/:id": () => import("./features/people/Role.svelte"),
  "/applications": () => import("./features/applications/Applications.svelte"),
  "/audit": () => import("./features/audit/Audit.svelte"),
  "/system": () => import("./features/system/System.svelte"),
  "/settings": () => import("./features/settings/Settings.svelte"),
  "/account": () => import("./features/account/Account.svelte"),
};

/** Props of routes that name a parameter without having one. */
const PROPS: Record<string, Record<string, unknown>> = { "/products/new": { params: { model: "new" } } };

export const routes: Record<string, Route> = {
  ...Object.fromEntries(Object.entries(LOADERS).map(([route, page]) => [route, guarded(route, page, PROPS[route] ?? {})])),
  "*": { asyncComponent: async () => ({ default: Unknown }), loadingComponent: Skeleton },
};
