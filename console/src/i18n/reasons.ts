/** Chinese texts of the reasons that the API states in English, without a code for each. */

/** English reasons with `{}` for values, and their translations with `{0}` for the first value. */
const CHINESE: [reason: string, translation: string][] = [
  ["is missing", "缺失"],
  ["is required", "必填"],
  ["is not set", "未设置"],
  ["is null.", "不能为空。"],
  ["must not be blank", "不能为空白"],
  ["must not be empty", "不能为空"],
  ["must not be null", "不能为 null"],
  ["must not be 0", "不能为 0"],
  ["must not be repeated", "不能重复"],
  ["must be finite", "必须是有限的数"],
  ["must be true or false", "必须是 true 或 false"],
  ["must be an object", "必须是对象"],
  ["must be an array", "必须是数组"],
  ["must be a string", "必须是文本"],
  ["must be a JSON object", "必须是 JSON 对象"],
  ["must fit in 64 bits", "必须在 64 位整数范围内"],
  ["must be printable ASCII without spaces", "必须是不含空格的可打印 ASCII 字符"],
  ["must not have control characters", "不能包含控制字符"],
  ["must have at most {} characters", "最多 {0} 个字符"],
  ["must have at least {} characters", "至少 {0} 个字符"],
  ["must have at most {} elements", "最多 {0} 个元素"],
  ["must have at most {} entries", "最多 {0} 个条目"],
  ["must have at least {} entries", "至少 {0} 个条目"],
  ["must have at least {} elements", "至少 {0} 个元素"],
  ["must be one of {}. Got {}", "必须是以下之一：{0}。当前值：{1}"],
  ["must be one of {}", "必须是以下之一：{0}"],
  ["must be from {} to {}", "必须在 {0} 到 {1} 之间"],
  ["must be at least {}", "不能小于 {0}"],
  ["must be at most {}", "不能大于 {0}"],
  ["must match {}", "必须符合格式 {0}"],
  ["is not JSON: {}", "不是有效的 JSON：{0}"],
  ["is not a URL: {}", "不是有效的 URL：{0}"],
  ["{} is empty", "{0} 为空"],
  ["device {} not found", "找不到设备 {0}"],
  ["there is no device {}", "设备 {0} 不存在"],
  ["there is no product {}", "产品 {0} 不存在"],
  ["the product {} still has devices", "产品 {0} 仍有设备"],
  ["the product {} has no codec", "产品 {0} 没有编解码器"],
  ["the dashboard {} does not exist", "仪表板 {0} 不存在"],
  ["the device does not exist", "设备不存在"],
  ["the resource does not exist", "资源不存在"],
  ["the session does not exist", "会话不存在"],
  ["the tag does not exist", "标签不存在"],
  ["the menu has children", "菜单有下级"],
  ["the last enabled super-admin must stay", "必须保留最后一个启用的超级管理员"],
  ["the last enabled super-admin must keep the role", "最后一个启用的超级管理员必须保留其角色"],
  ["old password is not correct", "旧密码不正确"],
];

const PATTERNS = CHINESE.map(([reason, translation]) => {
  const parts = reason.split("{}").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return { pattern: new RegExp(`^${parts.join("(.+?)")}$`), translation };
});

/** Return a reason in Chinese, or unchanged if the list does not contain it. */
export function translateReason(reason: string): string {
  for (const { pattern, translation } of PATTERNS) {
    const match = pattern.exec(reason);
    if (match) return translation.replace(/\{(\d)\}/g, (_, at: string) => match[Number(at) + 1]!);
  }
  return reason;
}
