# shellcheck shell=sh disable=SC2154
# The backend starts this in place of neuronx-cc. It runs the compiler and notes what it made:
# when it began and ended, the bytes of the kernel, and the beginning of the module, which names
# the operation and its shapes. What goes wrong is said with that beginning. In front of this stand
# the values of compiler, cache, record and only.
if [ "$1" != compile ]; then exec "$compiler" "$@"; fi
module='' output='' before=''
for word in "$@"; do
  if [ "$before" = --output ]; then output=$word; fi
  case $word in *.mlir | *.pb) module=$word ;; esac
  before=$word
done
key=$(head -c 600 "$module" | tr -sc '[:print:]' ' ' | sed 's/^module @//')
if [ "$only" = 1 ]; then
  echo "run.compile_cache = \"only\", and $cache has no kernel of: $key" >&2
  exit 1
fi
began=$(date +%s.%N)
if ! "$compiler" "$@"; then
  echo "this was compiled: $key" >&2
  exit 1
fi
ended=$(date +%s.%N)
# The backend goes on where its cache is full, and would compile again at each start.
probe=$cache/.longhaul.$$
if ! cp "$output" "$probe"; then
  rm -f "$probe"
  echo "the cache $cache takes no kernel, which was made of: $key" >&2
  exit 1
fi
bytes=$(wc -c < "$probe")
rm -f "$probe"
echo "$began $ended $bytes $key" >> "$record"
