import { useState } from "preact/hooks";
import { del, get, path, put } from "../api";
import { plural } from "../format";
import { Button, Search, TextField } from "../parts/controls";
import { Dialog } from "../parts/dialog";
import { notify } from "../parts/notices";
import { showSecret } from "../parts/secret";
import { Empty, Settled } from "../parts/states";
import { Table } from "../parts/table";
import { usePoll } from "../poll";
import { useLacking } from "../rights";
import type { UserChanged, UserDescription } from "../types";

export function Users() {
  const [search, setSearch] = useState("");
  const [changing, setChanging] = useState<string>(); // "" = a new user
  const [deleting, setDeleting] = useState<string>();
  const lacking = useLacking("admin");
  const polled = usePoll((signal) => get<{ users: UserDescription[] }>("/v0/users", signal), 5000, []);
  const users = polled.data?.users ?? [];
  const found = users.filter((row) => row.user.toLowerCase().includes(search.toLowerCase()));
  return (
    <>
      <div class="toolbar">
        <span class="muted">{polled.data && plural(found.length, "user")}</span>
        <span class="grow" />
        <Search label="Search users" value={search} onChange={setSearch} />
        <Button kind="main" onPress={() => setChanging("")} lacking={lacking}>
          Create user
        </Button>
      </div>
      <Settled of={polled} rows={8}>
        {() =>
          users.length === 0 ? (
            <Empty title="No users yet" commands={["mainstem user create alice"]}>
              Users sign in to Kafka listeners with a password (SASL SCRAM). Rules say what they may do.
            </Empty>
          ) : (
            <Table
              label="Users"
              rows={found}
              keyOf={(row) => row.user}
              columns={[
                { name: "User", cell: (row) => <span class="name">{row.user}</span>, wide: true },
                { name: "Mechanisms", cell: (row) => row.mechanisms.join(", ") },
                {
                  name: "",
                  cell: (row) => (
                    <span class="segments">
                      <Button small lacking={lacking} onPress={() => setChanging(row.user)}>
                        Change password
                      </Button>
                      <Button small kind="danger" lacking={lacking} onPress={() => setDeleting(row.user)}>
                        Delete
                      </Button>
                    </span>
                  ),
                },
              ]}
            />
          )
        }
      </Settled>
      {changing !== undefined && (
        <SetPassword user={changing} known={users} onClose={() => setChanging(undefined)} onDone={polled.reload} />
      )}
      {deleting !== undefined && (
        <Dialog
          title={`Delete the user ${deleting}?`}
          action="Delete user"
          danger
          onClose={() => setDeleting(undefined)}
          onSubmit={async () => {
            await del(path`/v0/users/${deleting}`);
            notify(`The user ${deleting} is deleted.`);
            polled.reload();
          }}
        >
          <p>The user cannot sign in any more. Rules that name the user stay.</p>
        </Dialog>
      )}
    </>
  );
}

function SetPassword(props: { user: string; known: UserDescription[]; onClose: () => void; onDone: () => void }) {
  const isNew = props.user === "";
  const [user, setUser] = useState(props.user);
  const [password, setPassword] = useState("");
  const set = async () => {
    const name = user.trim();
    if (!name) throw new Error("Enter the name of the user.");
    if (isNew && props.known.some((row) => row.user === name)) throw new Error(`The user ${name} exists: change its password.`);
    const changed = await put<UserChanged>(path`/v0/users/${name}`, { password: password || null });
    if (changed.password) showSecret({ title: `Password of ${name}`, secret: changed.password });
    else notify(isNew ? `The user ${name} is created.` : `The password of ${name} is changed.`);
    props.onDone();
  };
  return (
    <Dialog
      title={isNew ? "Create user" : `Change the password of ${props.user}`}
      action={isNew ? "Create" : "Change"}
      onClose={props.onClose}
      onSubmit={set}
    >
      {isNew && <TextField label="Name" value={user} onChange={setUser} autofocus />}
      <TextField
        label="Password"
        type="password"
        value={password}
        onChange={setPassword}
        autofocus={!isNew}
        hint="Empty: the server generates one and shows it once."
      />
    </Dialog>
  );
}
