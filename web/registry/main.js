// The registry's page.

import { h, show } from "../common/dom.js";
import { Page } from "../common/page.js";
import { AppsView } from "./apps.js";
import { HostView } from "./host.js";
import { HostsView } from "./hosts.js";
import { RegistryView } from "./health.js";
import { ServicesView } from "./services.js";

const VIEWS = { hosts: HostsView, host: HostView, apps: AppsView, services: ServicesView, registry: RegistryView };
const TABS = [["hosts", "Hosts"], ["apps", "Apps"], ["services", "Services"], ["registry", "Registry"]];
const tabs = document.getElementById("tabs");

function showTabs(name) {
  const shown = name === null ? [] : TABS;
  show(tabs, shown.map(([tab, text]) => h("a", { href: `#/${tab}`, "data-key": tab, "aria-current": tab === name || (tab === "hosts" && name === "host") ? "page" : null }, text)));
}

new Page({ daemon: "registry", views: VIEWS, header: showTabs }).start();
