/** Words that several features use, and those of each feature. */
import { en as account } from "../features/account/en";
import { en as alarms } from "../features/alarms/en";
import { en as applications } from "../features/applications/en";
import { en as audit } from "../features/audit/en";
import { en as entities } from "../features/entities/en";
import { en as events } from "../features/events/en";
import { en as fleet } from "../features/fleet/en";
import { en as integrations } from "../features/integrations/en";
import { en as palette } from "../features/palette/en";
import { en as people } from "../features/people/en";
import { en as system } from "../features/system/en";
import { en as dashboards } from "../features/dashboards/en";
import { en as devices } from "../features/devices/en";
import { en as flows } from "../features/flows/en";
import { en as products } from "../features/products/en";
import { en as settings } from "../features/settings/en";
import { en as signIn } from "../features/sign-in/en";
import { en as start } from "../features/start/en";
import { en as tsl } from "../features/tsl/en";

export const en = {
  ...account,
  ...alarms,
  ...applications,
  ...audit,
  ...entities,
  ...events,
  ...fleet,
  ...integrations,
  ...palette,
  ...people,
  ...system,
  ...dashboards,
  ...devices,
  ...flows,
  ...products,
  ...settings,
  ...signIn,
  ...start,
  ...tsl,
  "nav.start": "Start",
  "nav.devices": "Devices",
  "nav.docs": "API",
  "nav.sign-out": "Sign out",
  "nav.theme": "Light or dark",
  "nav.language": "Language",
  "nav.skip": "Skip to the content",
  "live.on": "Live",
  "live.off": "Not live: connecting again",
  "connection.offline": "You are offline",
  "connection.unreachable": "The platform does not answer",
  "connection.page": "This page opens as soon as the platform answers.",
  "connection.offline.text": "You are offline. Values on this page may be out of date.",
  "connection.unreachable.text": "The platform does not answer. Connecting again.",
  "connection.reconnecting.text": "Live values are interrupted. Connecting again.",
  "status.ONLINE": "Online",
  "status.OFFLINE": "Offline",
  "status.NEVER_SEEN": "Never seen",
  "failure.title": "That did not work",
  "failure.request": "Request {id}",
  "failure.retry": "Try again",
  "page.unknown": "There is no such page.",
  "nav.menu": "Menu",
  "nav.things": "Things",
  "nav.products": "Products",
  "page.loading": "Loading",
  "page.above": "Above this page",
  "failure.offline": "The platform does not answer. Check that it runs and that this computer has a network connection.",
  "failure.status": "The platform answered with status {status}. Try again later.",
  "failure.stale": "What you see may be old: {why}",
  "dialog.close": "Close",
  "dialog.cancel": "Cancel",
  "dialog.save": "Save",
  "dialog.delete": "Delete",
  "dialog.edit": "Edit",
  "dialog.name": "Name",
  "dialog.delete-title": "Delete {name}?",
  "dialog.deleted": "{name} is deleted",
  "dialog.rename": "Rename",
  "dialog.description": "Description",
  "dialog.enabled": "Enabled",
  "dialog.disabled": "Disabled",
  "dialog.state": "State",
  "dialog.add": "Add",
  "dialog.copy": "Copy",
  "dialog.copied": "Copied",
  "dialog.more": "More",
  "dialog.type": "Type {word} to confirm",
  "unsaved.title": "Discard your changes?",
  "unsaved.text": "This page has changes that are not saved. They cannot be recovered.",
  "unsaved.leave": "Discard changes",
  "toasts.title": "Notes",
  "diff.unchanged": "{count} lines that are the same",
  "entity.search": "Search entities",
  "combobox.type": "Type to search",
  "combobox.none": "Nothing found",
  "pages.title": "Pages",
  "pages.shown": "{first} to {last} of {total}",
  "pages.before": "Previous page",
  "pages.after": "Next page",
  "pages.older": "Show older ones",
  "range.15m": "Last 15 minutes",
  "range.hour": "Last hour",
  "range.6h": "Last 6 hours",
  "range.day": "Last day",
  "range.week": "Last week",
  "range.month": "Last 30 days",
  "range.start": "From",
  "range.end": "Until",
  "nav.fleet": "Fleet",
  "nav.administration": "Administration",
  "dialog.not-copied": "The browser lets nothing be copied from here.",
};
