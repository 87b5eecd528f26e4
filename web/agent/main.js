// The agent's page.

import { Page } from "../common/page.js";
import { AppView } from "./app.js";
import { AppsView } from "./apps.js";

function showHostname(_name, access) {
  document.getElementById("hostname").textContent = access?.hostname ?? "agent";
}

new Page({ daemon: "agent", views: { apps: AppsView, app: AppView }, header: showHostname }).start();
