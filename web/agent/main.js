// The agent's page.

import { h, show } from "../common/dom.js";
import { Page } from "../common/page.js";
import { AppView } from "./app.js";
import { AppsView } from "./apps.js";

const hostname = document.getElementById("hostname");
const registries = document.getElementById("registries");

function showHeader(_name, access) {
  hostname.textContent = access?.hostname ?? "agent";
  const urls = access?.registries ?? [];
  show(registries, urls.map((url) => h("a", { href: `${url}/#/host/${encodeURIComponent(access.hostname)}`, title: `This host at ${url}`, "data-key": url }, urls.length > 1 ? `Registry ${new URL(url).host}` : "Registry")));
}

new Page({ daemon: "agent", views: { apps: AppsView, app: AppView }, header: showHeader }).start();
