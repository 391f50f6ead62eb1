/** The notice that an update turned "Viewers may command devices" on, until it is dismissed in this browser. */
import { request } from "../../api/client";
import { getTenantSettings } from "../../api/generated";
import { session } from "../../api/session.svelte";

class CommandNotice {
  shown = $state(false);

  /** Show the notice to a super-admin unless the tenant has decided or the user has dismissed it here. */
  async load(): Promise<void> {
    const { user } = session;
    this.shown = false;
    if (!user?.super_admin || localStorage.getItem(key(user.user_id)) !== null) return;
    const settings = await request(getTenantSettings()).catch(() => null); // the next page tries again
    this.shown = settings?.notice === true && session.user === user;
  }

  dismiss(): void {
    if (session.user) localStorage.setItem(key(session.user.user_id), "dismissed");
    this.end();
  }

  end(): void {
    this.shown = false;
  }
}

const key = (userId: string): string => `thingway.command-notice.${userId}`;

export const notice = new CommandNotice();
