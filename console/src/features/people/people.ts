/** Users and roles: what several pages of people ask for. */
import { request } from "../../api/client";
import {
  addRoleMembers,
  createUser,
  listMenus,
  removeRoleMembers,
  searchRoles,
  searchUsers,
  type MenuNode,
  type RoleResponse,
  type UserResponse,
} from "../../api/generated";
import { pageOf, rowsOf, type Page } from "../../api/pages";

/** The role that may everything; nobody takes it away from itself. */
export const SUPER_ADMIN = "super_admin";
/** A password as the platform takes it. */
export const PASSWORD = "(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[ -~]{8,63}";

export async function findUsers(keyword: string, page: number, size: number): Promise<Page<UserResponse>> {
  return pageOf(await request(searchUsers({ body: { keyword: keyword || null, page_number: page, page_size: size } })));
}

export async function allRoles(): Promise<RoleResponse[]> {
  return rowsOf(await request(searchRoles({ body: { page_size: 1_000, page_number: 1 } })));
}

export async function menuTree(): Promise<MenuNode[]> {
  return await request(listMenus());
}

/** Add a user with roles. If the platform rejects a role, the user is added without roles. */
export async function addUser(user: { email: string; nickname: string; password: string }, roles: string[]): Promise<void> {
  await request(createUser({ body: user }));
  if (!roles.length) return;
  const { content } = await findUsers(user.email, 1, 100);
  const made = content.find((one) => one.email.toLowerCase() === user.email.toLowerCase());
  if (made) await setRoles(made.user_id, [], roles);
}

/** Give a user exactly `wanted` instead of the roles that it has. */
export async function setRoles(user_id: string, held: string[], wanted: string[]): Promise<void> {
  const body = { user_ids: [user_id] };
  for (const role_id of wanted.filter((one) => !held.includes(one))) {
    await request(addRoleMembers({ path: { role_id: Number(role_id) }, body }));
  }
  for (const role_id of held.filter((one) => !wanted.includes(one))) {
    await request(removeRoleMembers({ path: { role_id: Number(role_id) }, body }));
  }
}
