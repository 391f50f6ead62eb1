/** Users and roles: what several pages of people ask for. */
import { ask } from "../../api/client";
import {
  addRoleMembers,
  createUser,
  listMenus,
  removeRoleMembers,
  searchRoles,
  searchUsers,
  type MenuNode,
  type ShownRole,
  type ShownUser,
} from "../../api/generated";
import { pageOf, rowsOf, type Page } from "../../api/pages";

/** The role that may everything; nobody takes it away from itself. */
export const SUPER_ADMIN = "super_admin";
/** A password as the platform takes it. */
export const PASSWORD = "(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[ -~]{8,63}";

export async function findUsers(keyword: string, page: number, size: number): Promise<Page<ShownUser>> {
  return pageOf(await ask(searchUsers({ body: { keyword: keyword || null, page_number: page, page_size: size } })));
}

export async function allRoles(): Promise<ShownRole[]> {
  return rowsOf(await ask(searchRoles({ body: { page_size: 1_000, page_number: 1 } })));
}

export async function menuTree(): Promise<MenuNode[]> {
  return await ask(listMenus());
}

/** Add a user with roles; what the platform refuses of the roles leaves the user without them. */
export async function addUser(user: { email: string; nickname: string; password: string }, roles: string[]): Promise<void> {
  await ask(createUser({ body: user }));
  if (!roles.length) return;
  const { content } = await findUsers(user.email, 1, 100);
  const made = content.find((one) => one.email.toLowerCase() === user.email.toLowerCase());
  if (made) await setRoles(made.user_id, [], roles);
}

/** Give a user exactly `wanted` instead of the roles that it has. */
export async function setRoles(user_id: string, held: string[], wanted: string[]): Promise<void> {
  const body = { user_ids: [user_id] };
  for (const role_id of wanted.filter((one) => !held.includes(one))) {
    await ask(addRoleMembers({ path: { role_id: Number(role_id) }, body }));
  }
  for (const role_id of held.filter((one) => !wanted.includes(one))) {
    await ask(removeRoleMembers({ path: { role_id: Number(role_id) }, body }));
  }
}
