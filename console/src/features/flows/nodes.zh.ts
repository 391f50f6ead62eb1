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
    description: "流程的服务被调用时运行流程",
    parameters: { entityConfigs: ["输入", "调用服务时给出的内容；节点按标识引用"] },
  },
  simpleTimer: { title: "定时器", description: "在某一时刻、按间隔或按每天的时间运行流程", parameters: { timerSettings: ["执行", "流程何时运行"] } },
  eventListener: {
    title: "事件监听",
    description: "实体有新值时（如设备上报）运行流程",
    parameters: { entities: ["实体", "实体的键；* 代表任意字符"] },
  },
  httpIn: {
    title: "HTTP 入口",
    description: "流程的地址被调用时运行流程",
    parameters: {
      method: ["方法", "触发流程的请求方法"],
      url: ["URL", "地址末段，完整地址为 `/workflow-http-in/<access key>/<url>`，调用者使用 HTTP 凭据；`{name}` 代表任意一段"],
      token: ["令牌", "另一地址 `/workflow/hooks/<token>` 的末段；知道它即可触发流程，无需登录。32 至 128 个随机字母、数字、- 或 _"],
    },
  },
  simpleMqtt: {
    title: "MQTT",
    description: "租户的客户端向主题发布消息时运行流程",
    parameters: {
      subscriptionTopic: ["主题", "位于 `beaver-iot/<access key>/` 之下，客户端使用 MQTT 凭据；`+` 代表一级，末尾的 `#` 代表其下全部"],
      encoding: ["编码", "流程如何得到消息内容"],
    },
  },
  choice: { title: "条件分支", description: "沿第一个条件成立的分支继续", parameters: { choice: ["条件", "走第一个成立的分支"] } },
  code: {
    title: "代码",
    description: "运行只能计算的 JavaScript 或 Python",
    parameters: {
      expression: ["代码", "JavaScript：函数体，用 return 给出输出。Python：def main()，或最后一句为结果的语句。除输入外还可使用 `body` 和 `properties`。"],
      inputArguments: ["输入", "代码的变量"],
      payload: ["输出", "代码给出的映射包含什么"],
    },
  },
  entityAssigner: {
    title: "设置实体",
    description: "设置实体的属性，例如开灯",
    parameters: { exchangePayload: ["赋值", "按属性的键给出值或引用"] },
  },
  entitySelector: { title: "读取实体", description: "读取实体的最新值", parameters: { entities: ["实体", "要读取最新值的实体的键"] } },
  serviceInvocation: {
    title: "调用服务",
    description: "调用服务并等待其应答",
    parameters: { serviceInvocationSetting: ["服务", "服务及其输入"], payload: ["输出", "服务应答的内容"] },
  },
  alarm: {
    title: "告警",
    description: "触发或清除设备的告警",
    parameters: {
      entity: ["设备", "告警所属设备的某个实体的键"],
      key: ["键", "流程对告警的称呼；同一设备同一键只有一个未清除的告警"],
      action: ["操作"],
      severity: ["级别"],
      content: ["内容", "人们看到的文字"],
    },
  },
  output: { title: "输出", description: "应答调用流程者", parameters: { outputVariables: ["输出变量", "按名称给出值或引用"] } },
  email: {
    title: "邮件",
    description: "发送邮件",
    parameters: {
      emailConfig: ["服务器", "接收邮件的服务器"],
      recipients: ["收件人", "地址"],
      subject: ["主题"],
      content: ["内容", "HTML"],
      fromName: ["发件人名称"],
      fromAddress: ["发件人", "默认为服务器的用户名"],
    },
  },
  httpRequest: {
    title: "HTTP 请求",
    description: "通过 HTTP 询问其他系统",
    parameters: {
      url: ["URL", "要询问的地址"],
      method: ["方法"],
      header: ["请求头", "可包含凭据"],
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
