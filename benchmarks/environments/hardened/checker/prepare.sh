# One commit, which holds the task only.
set -e
cd workspace
git init -q
g() { git -c user.name=a -c user.email=a@b -c safe.directory='*' "$@"; }
g add -A && g commit -qm "the task"
