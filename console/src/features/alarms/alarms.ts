/** Words and searches of alarms. */
import type { EventCondition, SearchAlarms, SilenceCondition, ValueCondition } from "../../api/generated";
import { formatDuration, t } from "../../i18n/index.svelte";
import { query } from "../../lib/query.svelte";
import { bounds, rangeInQuery } from "../../lib/range";

export const SEVERITIES = ["CRITICAL", "MAJOR", "MINOR", "WARNING", "INFO"] as const;
export type Severity = (typeof SEVERITIES)[number];
export type Condition = ValueCondition | SilenceCondition | EventCondition;
export const COMPARISONS = { GT: ">", GTE: "≥", LT: "<", LTE: "≤", EQ: "=", NE: "≠" } as const;

/** The alarms that the page's address asks for. */
export function alarmFilters(): SearchAlarms {
  const severity = SEVERITIES.filter((one) => query.list("severity").includes(one));
  const state = query.get("state");
  const limited = query.get("last") || query.get("from");
  const { from, until } = bounds(rangeInQuery(0));
  return {
    keyword: query.get("keyword") || null,
    severity: severity.length ? severity : null,
    open: state === "all" ? null : state !== "over",
    alarm_status: query.get("claimed") === "" ? null : [query.get("claimed") === "no"],
    start_timestamp: limited ? from : null,
    end_timestamp: limited ? until : null,
    device_ids: query.get("device") ? [query.get("device")] : null,
    rule_id: query.get("rule") || null,
  };
}

/** A condition in words: `temperature > 30 for 60 s`. */
export function describeCondition(condition: Condition): string {
  switch (condition.type) {
    case "VALUE": {
      const words = `${condition.property} ${COMPARISONS[condition.comparison]} ${String(condition.threshold)}`;
      return condition.seconds ? t("rules.for", { what: words, time: formatDuration(condition.seconds) }) : words;
    }
    case "SILENCE":
      return t("rules.silent", { time: formatDuration(condition.seconds) });
    case "EVENT":
      return condition.ended_by
        ? t("rules.event-until", { event: condition.event, ended_by: condition.ended_by })
        : t("rules.event", { event: condition.event });
  }
}
