/** Which page stands at which address. Each is loaded when somebody goes there. */
import type { Component } from "svelte";
import wrap from "svelte-spa-router/wrap";

import Skeleton from "./lib/Skeleton.svelte";
import Unknown from "./lib/Unknown.svelte";

type Page = () => Promise<{ default: Component<any> }>;

const page = (asyncComponent: Page) => wrap({ asyncComponent, loadingComponent: Skeleton });

export const routes = {
  "/": page(() => import("./features/start/Start.svelte")),
  "/devices": page(() => import("./features/devices/Devices.svelte")),
  "/devices/:id": page(() => import("./features/devices/Device.svelte")),
  "*": Unknown,
};
