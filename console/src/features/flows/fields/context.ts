/** What the fields of a node's form know of the flow around it. */
import { createContext } from "svelte";

import type { DesignNode } from "../design";

export interface Around {
  /** Nodes that come before: their outputs may be referred to. The nearest first. */
  before: DesignNode[];
  readonly: boolean;
}

/** A function, as what is around changes. */
export const [around, setAround] = createContext<() => Around>();
