/** The context of a node's form: earlier nodes and permissions. */
import { createContext } from "svelte";

import type { DesignNode } from "../design";

export interface Around {
  /** Nodes that come before: their outputs may be referred to. The nearest first. */
  before: DesignNode[];
  readonly: boolean;
}

/** A function, because the context changes. */
export const [around, setAround] = createContext<() => Around>();
