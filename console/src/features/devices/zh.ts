import type { en } from "./en";

export const zh: Record<keyof typeof en, string> = {
  "devices.title": "设备",
  "devices.search": "按名称搜索",
  "devices.status": "状态",
  "devices.all": "全部",
  "devices.name": "名称",
  "devices.model": "型号",
  "devices.group": "分组",
  "devices.reported": "最近上报",
  "devices.number": "{count} 台设备",
  "devices.none": "没有符合条件的设备。",
  "devices.more": "显示更多",
  "device.history": "历史",
  "device.values": "当前值",
  "device.none": "这段时间没有上报。",
  "device.range": "时间范围",
  "device.range.hour": "最近一小时",
  "device.range.day": "最近一天",
  "device.range.week": "最近一周",
};
