import { Tabs } from "../parts/tabs";
import { to } from "../route";
import { AuditLog } from "./access_audit";
import { Keys } from "./access_keys";
import { Namespaces } from "./access_namespaces";
import { Rates } from "./access_rates";
import { Rules } from "./access_rules";
import { Users } from "./access_users";

const TABS = [
  ["keys", "API keys"],
  ["users", "Users"],
  ["rules", "Rules"],
  ["namespaces", "Namespaces"],
  ["rates", "Rates"],
  ["audit", "Audit log"],
] as const;

export function Access({ tab }: { tab: string }) {
  return (
    <section class="screen">
      <div class="screen-head">
        <h1>Access</h1>
      </div>
      <Tabs label="Tabs of access" tabs={TABS} current={tab} hrefOf={(one) => to("access", one)} />
      <Part tab={tab} />
    </section>
  );
}

function Part({ tab }: { tab: string }) {
  switch (tab) {
    case "users":
      return <Users />;
    case "rules":
      return <Rules />;
    case "namespaces":
      return <Namespaces />;
    case "rates":
      return <Rates />;
    case "audit":
      return <AuditLog />;
    default:
      return <Keys />;
  }
}
