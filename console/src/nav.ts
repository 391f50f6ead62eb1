/** The entries of the menu, in order. An entry is shown to users who may open its page. */
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
import Settings from "@lucide/svelte/icons/settings";
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
}

/** Return whether the user may open the page of an entry. */
export function mayEnter({ path }: Entry): boolean {
  return session.mayOpen(path);
}

export interface Group {
  /** The first group has no title. */
  title?: Key;
  entries: Entry[];
}

export const groups: Group[] = [
  {
    entries: [
      { title: "nav.start", path: "/", icon: House },
      { title: "nav.dashboards", path: "/dashboards", icon: LayoutDashboard },
      { title: "nav.flows", path: "/flows", icon: Workflow },
    ],
  },
  {
    title: "nav.things",
    entries: [
      { title: "nav.devices", path: "/devices", icon: Cpu },
      { title: "nav.products", path: "/products", icon: Boxes },
      { title: "entities.title", path: "/entities", icon: Shapes },
      { title: "integrations.title", path: "/integrations", icon: Plug },
    ],
  },
  {
    title: "nav.fleet",
    entries: [
      { title: "alarms.title", path: "/alarms", icon: BellRing },
      { title: "events.title", path: "/events", icon: Radio },
      { title: "groups.title", path: "/fleet/groups", icon: Layers },
      { title: "places.title", path: "/fleet/places", icon: Pin },
      { title: "selection.title", path: "/fleet/selection", icon: ListChecks },
      { title: "imports.title", path: "/fleet/imports", icon: FileSpreadsheet },
    ],
  },
  {
    title: "nav.administration",
    entries: [
      { title: "account.title", path: "/account", icon: CircleUser },
      { title: "people.users", path: "/people/users", icon: Users },
      { title: "people.roles", path: "/people/roles", icon: ShieldCheck },
      { title: "applications.title", path: "/applications", icon: KeyRound },
      { title: "credentials.title", path: "/credentials", icon: Lock },
      { title: "audit.title", path: "/audit", icon: ClipboardList },
      { title: "system.title", path: "/system", icon: Gauge },
      { title: "settings.title", path: "/settings", icon: Settings },
    ],
  },
];
