/** What the menu of the console leads to, in its order. An entry is shown to who may see its page. */
import Boxes from "@lucide/svelte/icons/boxes";
import House from "@lucide/svelte/icons/house";
import LayoutDashboard from "@lucide/svelte/icons/layout-dashboard";
import Workflow from "@lucide/svelte/icons/workflow";
import Cpu from "@lucide/svelte/icons/cpu";
import BellRing from "@lucide/svelte/icons/bell-ring";
import CircleUser from "@lucide/svelte/icons/circle-user";
import ClipboardList from "@lucide/svelte/icons/clipboard-list";
import FileSpreadsheet from "@lucide/svelte/icons/file-spreadsheet";
import Gauge from "@lucide/svelte/icons/gauge";
import KeyRound from "@lucide/svelte/icons/key-round";
import Layers from "@lucide/svelte/icons/layers";
import ListChecks from "@lucide/svelte/icons/list-checks";
import Lock from "@lucide/svelte/icons/lock";
import Pin from "@lucide/svelte/icons/map-pin";
import Plug from "@lucide/svelte/icons/plug";
import Radio from "@lucide/svelte/icons/radio";
import Shapes from "@lucide/svelte/icons/shapes";
import ShieldCheck from "@lucide/svelte/icons/shield-check";
import Users from "@lucide/svelte/icons/users";
import type { Component } from "svelte";

import { session } from "./api/session.svelte";
import type { Key } from "./i18n/index.svelte";

export interface Entry {
  title: Key;
  /** The page, behind `#`; those below it belong to it. */
  path: string;
  icon: Component<{ size?: number; "aria-hidden"?: "true" }>;
  /** Function codes of which one suffices; everybody sees the page when there is none. */
  permission?: string[];
}

/** Whether the user may see the page of an entry. */
export function mayEnter({ permission }: Entry): boolean {
  return !permission || permission.some((code) => session.may(code));
}

/** A code that no role has: super-admins alone may everything. */
const SUPER_ADMINS = ["super_admin"];
const ALARMS = ["device.view", "dashboard.view", "dashboard.edit"];

export interface Group {
  /** The first group has no title. */
  title?: Key;
  entries: Entry[];
}

export const groups: Group[] = [
  {
    entries: [
      { title: "nav.start", path: "/", icon: House },
      { title: "nav.dashboards", path: "/dashboards", icon: LayoutDashboard, permission: ["dashboard.view"] },
      { title: "nav.flows", path: "/flows", icon: Workflow, permission: ["workflow.view"] },
    ],
  },
  {
    title: "nav.things",
    entries: [
      { title: "nav.devices", path: "/devices", icon: Cpu, permission: ["device.view"] },
      { title: "nav.products", path: "/products", icon: Boxes, permission: ["product.view", "product.manage"] },
      { title: "entities.title", path: "/entities", icon: Shapes, permission: ["entity_data.view"] },
      { title: "integrations.title", path: "/integrations", icon: Plug, permission: ["integration.view"] },
    ],
  },
  {
    title: "nav.fleet",
    entries: [
      { title: "alarms.title", path: "/alarms", icon: BellRing, permission: ALARMS },
      { title: "events.title", path: "/events", icon: Radio, permission: ["entity_data.view"] },
      { title: "groups.title", path: "/fleet/groups", icon: Layers, permission: ["device.view"] },
      { title: "places.title", path: "/fleet/places", icon: Pin, permission: ["device.view"] },
      { title: "selection.title", path: "/fleet/selection", icon: ListChecks, permission: ["device.edit", "device.delete"] },
      { title: "imports.title", path: "/fleet/imports", icon: FileSpreadsheet, permission: ["device.view"] },
    ],
  },
  {
    title: "nav.administration",
    entries: [
      { title: "account.title", path: "/account", icon: CircleUser },
      { title: "people.users", path: "/people/users", icon: Users, permission: SUPER_ADMINS },
      { title: "people.roles", path: "/people/roles", icon: ShieldCheck, permission: SUPER_ADMINS },
      { title: "applications.title", path: "/applications", icon: KeyRound, permission: SUPER_ADMINS },
      { title: "credentials.title", path: "/credentials", icon: Lock, permission: ["credentials.view"] },
      { title: "audit.title", path: "/audit", icon: ClipboardList, permission: SUPER_ADMINS },
      { title: "system.title", path: "/system", icon: Gauge, permission: SUPER_ADMINS },
    ],
  },
];
