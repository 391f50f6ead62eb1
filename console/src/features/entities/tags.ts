/** Tags of entities. */
import { request } from "../../api/client";
import { findEntityTags, type TagResponse } from "../../api/generated";

/** The most tags that a tenant has. */
const MOST = 300;

export async function allTags(): Promise<TagResponse[]> {
  return (await request(findEntityTags({ body: { page_size: MOST, page_number: 1 } }))).content;
}
