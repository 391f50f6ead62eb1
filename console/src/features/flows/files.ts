/** Flows as files: the design as JSON, which other editors of the platform take, too. */
import { type Design, NotADesign, readDesign } from "./design";

const LARGEST = 1024 * 1024;

/** What was imported and is opened next. */
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
  if (file.size > LARGEST) throw new NotADesign(`${file.size} > ${LARGEST}`);
  return readDesign(await file.text());
}

export function download(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = `${name.replaceAll(/[^\p{L}\p{N} ._-]/gu, "_")}.json`;
  link.click();
  URL.revokeObjectURL(address);
}
