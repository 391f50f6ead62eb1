/** Files that are kept on the platform. */
import { request } from "./client";
import { announceUpload } from "./generated";

/** Upload a file and return its path on this platform, without the host. Throws `refused` when the file is rejected. */
export async function upload(file: File, refused: string): Promise<string> {
  const { upload_url, resource_url } = await request(announceUpload({ body: { file_name: file.name.slice(-200) } }));
  const answer = await fetch(here(upload_url), { method: "PUT", body: file });
  if (!answer.ok) throw new Error(refused);
  return here(resource_url);
}

function here(address: string): string {
  const { pathname, search } = new URL(address, location.href);
  return `${pathname}${search}`;
}
