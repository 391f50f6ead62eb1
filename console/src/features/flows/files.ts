/** Flows as files: the design as JSON, which other editors of the platform take, too. */
import { saveFile } from "../../api/client";
import { type Design, NotADesign, readDesign } from "./design";

const LARGEST = 1024 * 1024;

/** An imported design, until the editor opens it. */
class Imported {
  name = "";
  #design: Design | undefined;

  put(name: string, design: Design): void {
    this.name = name;
    this.#design = design;
  }

  /** Once. */
  take(): Design | undefined {
    const design = this.#design;
    this.#design = undefined;
    this.name = "";
    return design;
  }
}

export const imported = new Imported();

/** The design in a file. Throws `NotADesign`. */
export async function readFile(file: File): Promise<Design> {
  if (file.size > LARGEST) throw new NotADesign("larger than 1 MiB");
  return readDesign(await file.text());
}

export function download(name: string, text: string): void {
  saveFile(new Blob([text], { type: "application/json" }), `${name.replaceAll(/[^\p{L}\p{N} ._-]/gu, "_")}.json`);
}
