/** Icons of node types. */
import Bell from "@lucide/svelte/icons/bell-ring";
import Box from "@lucide/svelte/icons/box";
import Braces from "@lucide/svelte/icons/code-xml";
import Clock from "@lucide/svelte/icons/clock";
import Ear from "@lucide/svelte/icons/ear";
import Globe from "@lucide/svelte/icons/globe";
import LogIn from "@lucide/svelte/icons/log-in";
import LogOut from "@lucide/svelte/icons/log-out";
import Mail from "@lucide/svelte/icons/mail";
import Pencil from "@lucide/svelte/icons/pencil-line";
import Play from "@lucide/svelte/icons/play";
import Radio from "@lucide/svelte/icons/radio";
import Search from "@lucide/svelte/icons/list-filter";
import Send from "@lucide/svelte/icons/send";
import Split from "@lucide/svelte/icons/split";
import Webhook from "@lucide/svelte/icons/webhook";
import Zap from "@lucide/svelte/icons/zap";
import type { Component } from "svelte";

type Icon = Component<{ size?: number; "aria-hidden"?: "true" }>;

const ICONS: Record<string, Icon> = {
  eventListener: Ear,
  httpIn: LogIn,
  simpleMqtt: Radio,
  simpleTimer: Clock,
  trigger: Play,
  choice: Split,
  alarm: Bell,
  code: Braces,
  entityAssigner: Pencil,
  entitySelector: Search,
  serviceInvocation: Zap,
  email: Mail,
  httpRequest: Globe,
  mqttPublish: Send,
  output: LogOut,
  webhook: Webhook,
};

export function iconOf(component: string): Icon {
  return ICONS[component] ?? Box;
}
