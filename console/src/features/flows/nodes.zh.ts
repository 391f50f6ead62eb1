/** Node types in Chinese. Missing texts are shown in English, as the platform sends them. */

export interface Words {
  title: string;
  description: string;
  /** Title and description of each parameter. */
  parameters: Record<string, [title: string, description?: string]>;
}

export const nodes: Record<string, Words> = {
  trigger: {
    title: "触发器",
    description: "流程的服务被调用时启动流程",
    parameters: { entityConfigs: ["输入", "调用服务时传入的参数，节点按标识符引用"] },
  },
  simpleTimer: { title: "定时器", description: "在指定时刻、按固定间隔或按星期定时启动流程", parameters: { timerSettings: ["计划", "流程的启动时间"] } },
  eventListener: {
    title: "事件监听",
    description: "实体有新值时启动流程，例如设备上报时",
    parameters: { entities: ["实体", "实体的键；* 代表任意字符"] },
  },
  httpIn: {
    title: "HTTP 入口",
    description: "客户端请求流程的地址时启动流程",
    parameters: {
      method: ["方法", "启动流程的请求方法"],
      url: ["URL", "地址的最后一段，完整地址为 `/workflow-http-in/<access key>/<url>`，调用方使用 HTTP 凭证；`{name}` 匹配任意一段"],
      token: ["令牌", "地址 `/workflow/hooks/<token>` 的最后一段。知道该地址即可启动流程，无需登录。须为 32 至 128 个随机字母、数字、- 或 _"],
    },
  },
  simpleMqtt: {
    title: "MQTT",
    description: "租户的客户端向主题发布消息时启动流程",
    parameters: {
      subscriptionTopic: ["主题", "位于 `beaver-iot/<access key>/` 之下，客户端使用 MQTT 凭证；`+` 匹配一级，末尾的 `#` 匹配其下所有级"],
      encoding: ["编码", "流程接收消息内容的编码"],
    },
  },
  choice: { title: "条件分支", description: "沿第一个条件成立的分支继续", parameters: { choice: ["条件", "执行第一个成立的分支"] } },
  code: {
    title: "代码",
    description: "在沙箱中运行 JavaScript 或 Python",
    parameters: {
      expression: ["代码", "JavaScript：函数体，用 return 给出输出。Python：def main()，或若干语句，最后一条语句的值为输出。除输入外还可使用 `body` 和 `properties`。"],
      inputArguments: ["输入", "代码的变量"],
      payload: ["输出", "代码返回的对象的字段"],
    },
  },
  entityAssigner: {
    title: "设置实体",
    description: "设置实体的属性，例如开灯",
    parameters: { exchangePayload: ["赋值", "按属性的键填写值或引用"] },
  },
  entitySelector: { title: "读取实体", description: "读取实体的最新值", parameters: { entities: ["实体", "要读取最新值的实体的键"] } },
  serviceInvocation: {
    title: "调用服务",
    description: "调用服务，最多等待应答 10 秒",
    parameters: { serviceInvocationSetting: ["服务", "服务及其输入"], payload: ["输出", "服务应答的内容"] },
  },
  alarm: {
    title: "告警",
    description: "产生或清除设备的告警",
    parameters: {
      entity: ["设备", "告警所属设备的某个实体的键"],
      key: ["键", "流程中告警的标识。同一设备的同一键最多有一个未清除的告警"],
      action: ["操作"],
      severity: ["级别"],
      content: ["内容", "显示给用户的告警内容"],
    },
  },
  output: { title: "输出", description: "设置将流程作为服务调用时的应答", parameters: { outputVariables: ["输出变量", "按名称填写值或引用"] } },
  email: {
    title: "邮件",
    description: "发送邮件",
    parameters: {
      emailConfig: ["服务器", "发送邮件所用的服务器"],
      recipients: ["收件人", "邮箱地址"],
      subject: ["主题"],
      content: ["内容", "HTML"],
      fromName: ["发件人名称"],
      fromAddress: ["发件人", "默认为服务器的用户名"],
    },
  },
  httpRequest: {
    title: "HTTP 请求",
    description: "向其他系统发送 HTTP 请求",
    parameters: {
      url: ["URL", "请求的地址"],
      method: ["方法"],
      header: ["请求头", "可包含凭证"],
      params: ["查询参数", "附加到 URL"],
      body: ["正文", "文本原样发送，其他按 JSON 发送；`{type, value}` 可指定内容类型：`application/json`、`application/x-www-form-urlencoded` 或 `text/plain`"],
    },
  },
  mqttPublish: {
    title: "MQTT 发布",
    description: "向 MQTT 服务器发布消息",
    parameters: {
      broker: ["服务器", "接收消息的服务器"],
      topic: ["主题"],
      payload: ["内容", "文本原样发送，其他按 JSON 发送；默认为收到的内容"],
      qos: ["QoS", "0、1 或 2"],
      retain: ["保留", "服务器是否保留该消息"],
    },
  },
  webhook: {
    title: "Webhook",
    description: "向其他系统推送数据",
    parameters: {
      webhookUrl: ["URL", "推送地址"],
      inputArguments: ["内容", "以 JSON 推送的内容；为空时推送收到的内容"],
      secretKey: ["密钥", "对推送内容签名：请求头 TIMESTAMP、NONCE 和 SIGNATURE"],
    },
  },
};
