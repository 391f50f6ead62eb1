export const en = {
  "events.title": "Events",
  "events.text": "Values as they change, of the entities that you see. Refused reports, connections and commands stand at each device.",
  "events.keyword": "Entity, device or key",
  "events.value": "Value contains",
  "events.listening": "Listening to {count} of {total} entities",
  "events.pause": "Pause",
  "events.go-on": "Go on ({count} passed)",
  "events.clear": "Empty the list",
  "events.when": "When",
  "events.source": "Device",
  "events.none": "Nothing has changed yet",
  "events.none.text": "{count} entities are listened to; changes appear here at once.",
};
