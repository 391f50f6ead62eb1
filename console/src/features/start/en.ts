export const en = {
  "start.title": "What is alive",
  "start.devices": "Devices",
  "start.online": "online",
  "start.offline": "offline",
  "start.never": "never seen",
  "start.newest": "Added last",
};
