import { mount } from "svelte";

import App from "./App.svelte";
import "./app.css";
import { resume } from "./api/client";

await resume();
mount(App, { target: document.getElementById("app")! });
