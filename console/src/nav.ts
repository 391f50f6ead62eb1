/** What the menu of the console leads to, in its order. An entry is shown to who may see its page. */
import House from "@lucide/svelte/icons/house";
import Cpu from "@lucide/svelte/icons/cpu";
import type { Component } from "svelte";

import type { Key } from "./i18n/index.svelte";

export interface Entry {
  title: Key;
  /** The page, behind `#`; those below it belong to it. */
  path: string;
  icon: Component<{ size?: number; "aria-hidden"?: "true" }>;
  /** Function codes of which one suffices; everybody sees the page when there is none. */
  permission?: string[];
}

export interface Group {
  /** The first group has no title. */
  title?: Key;
  entries: Entry[];
}

export const groups: Group[] = [
  { entries: [{ title: "nav.start", path: "/", icon: House }] },
  {
    title: "nav.things",
    entries: [
      { title: "nav.devices", path: "/devices", icon: Cpu, permission: ["device.view"] },
    ],
  },
];
