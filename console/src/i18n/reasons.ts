/** Chinese texts of the reasons that the API states in English, without a code for each. */

/** English reasons with `{}` for values, and their translations with `{0}` for the first value. */
const CHINESE: [reason: string, translation: string][] = [
  ["is missing", "缺失"],
  ["is required", "必填"],
  ["is not set", "未设置"],
  ["is null.", "不能为空。"],
  ["is not known", "未定义"],
  ["is read-only", "只读"],
  ["is write-only", "只写"],
  ["is given twice", "重复"],
  ["does not exist", "不存在"],
  ["is too short to be requested", "时间过短，无法请求"],
  ["is older than the retention", "早于数据保留期"],
  ["is more than five minutes in the future", "比当前时间晚五分钟以上"],
  ["is ignored: another value has the same key", "已忽略：其他值使用了相同的键"],
  ["needs a timestamp in seconds or milliseconds", "需要以秒或毫秒为单位的时间戳"],
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
  ["must be a text", "必须是文本"],
  ["must be a number", "必须是数字"],
  ["must be an integer", "必须是整数"],
  ["must be of type {}", "类型必须是 {0}"],
  ["must be in [{}, {}]", "必须在 {0} 到 {1} 之间"],
  ["must have {} to {} characters", "必须有 {0} 到 {1} 个字符"],
  ["must have at least one key", "至少需要一个键"],
  ["must not be empty; describe the problem", "不能为空；请描述问题"],
  ["must not be empty; choose a value to compare", "不能为空；请选择要比较的值"],
  ["must not be empty; enter a number", "不能为空；请输入数字"],
  ["must not be empty unless a token is set", "未设置令牌时不能为空"],
  ["must have 32 to 128 random letters, digits, - and _", "必须是 32 至 128 个随机字母、数字、- 或 _"],
  ["two branches have the same id; ids must be unique", "两个分支的 id 相同；id 必须唯一"],
  ["* alone matches all entities; add a prefix", "单独的 * 匹配所有实体；请添加前缀"],
  ["is required for type {}", "类型为 {0} 时必填"],
  ["{} is repeated; names must be unique", "{0} 重复；名称必须唯一"],
  ["{} is not an email address", "{0} 不是有效的邮箱地址"],
  ["{} did not respond in time", "{0} 没有及时响应"],
  ["host {} was not found: {}", "找不到主机 {0}：{1}"],
  ["the webhook returned status {}", "Webhook 返回状态码 {0}"],
  ["the tenant has no mail server; add its SMTP credential", "租户没有邮件服务器；请添加 SMTP 凭证"],
  ["the device was deleted", "设备已删除"],
  ["larger than 1 MiB", "大于 1 MiB"],
  ["not a JSON object", "不是 JSON 对象"],
  ["`{}` must be an array of objects", "`{0}` 必须是对象数组"],
  ["each of `{}` must have an `{}`", "`{0}` 的每一项必须有 `{1}`"],
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
  ["{} must be DOUBLE", "{0} 必须是数字"],
  ["{} must be LONG", "{0} 必须是整数"],
  ["{} must be BOOLEAN", "{0} 必须是 true 或 false"],
  ["must be 1 to 64 letters, digits, {}, the first a letter or digit", "必须是 1 至 64 个字母、数字、{0}，且以字母或数字开头"],
  ["must be 1 to 64 letters, digits, {}", "必须是 1 至 64 个字母、数字、{0}"],
  ["is one of several nodes without incoming edges; a flow has exactly one entry", "有多个节点没有上游连线；流程只能有一个入口"],
  ["has no incoming edge and is not an entry; connect or remove it", "没有上游连线且不是入口；请连接或删除该节点"],
  ["all nodes have incoming edges; a flow needs an entry", "所有节点都有上游连线；流程需要一个入口"],
  ["is an entry, which must not have incoming edges", "入口不能有上游连线"],
  ["is on or behind a cycle; remove an edge of the cycle", "位于循环之中或之后；请删除循环中的一条连线"],
  ["must not be empty; add an entry node", "不能为空；请添加入口节点"],
  ["{}: a device with the SN {} exists already", "{0}：SN 为 {1} 的设备已存在"],
  ["a group with the name {} exists already", "名为 {0} 的分组已存在"],
  ["a dashboard {} exists already", "仪表板 {0} 已存在"],
  ["access key {} exists already", "access key {0} 已存在"],
  ["tag {} already exists", "标签 {0} 已存在"],
  ["entity {} already exists", "实体 {0} 已存在"],
  ["the role still has users", "该角色仍分配给用户"],
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

function findTranslation(reason: string): string | undefined {
  for (const { pattern, translation } of PATTERNS) {
    const match = pattern.exec(reason);
    if (match) return translation.replace(/\{(\d)\}/g, (_, at: string) => match[Number(at) + 1]!);
  }
  return undefined;
}

/** Return a reason in Chinese, also behind the name of a field, or unchanged if the list does not contain it. */
export function translateReason(reason: string): string {
  const [, field, rest] = /^([\w.[\]]+): (.+)$/s.exec(reason) ?? [];
  const behindField = rest && findTranslation(rest);
  return findTranslation(reason) ?? (behindField ? `${field}：${behindField}` : reason);
}
