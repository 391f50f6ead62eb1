"""How Thingway is deployed."""
