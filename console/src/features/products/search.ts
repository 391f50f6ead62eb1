/** Products to choose from. */
import { request } from "../../api/client";
import { findProducts, findProductTemplates, type ProductResponse, type LibraryTemplate } from "../../api/generated";
import { session } from "../../api/session.svelte";
import { t } from "../../i18n/index.svelte";
import type { Option } from "../../lib/Combobox.svelte";

/** Products that can be chosen. */
const MOST = 1000;

export const mayFindProducts = (): boolean => ["product.view", "product.manage", "device.add"].some((code) => session.may(code));

export async function products(): Promise<ProductResponse[]> {
  const { content } = await request(findProducts({ body: { page_size: MOST, page_number: 1 } }));
  return content.map((one) => ({ ...one, name: productName(one) }));
}

/** Return the name of a product; the built-in one has a name in the user's language. */
export function productName({ name, built_in }: Pick<ProductResponse, "name" | "built_in">): string {
  return built_in ? t("products.generic") : name;
}

/** Return the templates from which products can be created. */
export async function templates(): Promise<LibraryTemplate[]> {
  return (await request(findProductTemplates({ body: { page_size: MOST } }))).content;
}

/** Products whose name or model has the words. */
export async function productsLike(text: string): Promise<Option[]> {
  const words = text.toLowerCase();
  const all = (await products()).map((one) => ({ value: one.model, label: one.name, note: one.model }));
  return all.filter((one) => `${one.label} ${one.note}`.toLowerCase().includes(words));
}
