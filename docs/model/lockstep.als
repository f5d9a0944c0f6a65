/* Ratify, publish, expire, abort: how entries get into the timeline and out of it again, and what readers are promised.

   README.md beside this file says what stands for what, what is assumed, and what is left out. `make model` runs it:
   each `check` that expects 0 looks for a counterexample and must find none, each that expects 1 must find one. */
module lockstep

open util/ordering[Version] as order

sig Version {}                    -- numbers: of the database, and of each table's log
sig Table {}
sig File { of: one Table }        -- a data file
sig Reader {}                     -- a session that reads, table by table, at one database version

/** What can stand in the timeline. Each is also the process that wants to put it there. */
abstract sig Entry { var judged: lone Version }  -- it looked at all entries through this one, and puts the next

sig Transaction extends Entry {
  adds: some File,
  removes: set File,
  var base: lone Version,         -- open, since this version
  var slot: Table -> lone Version -- the version of each table that its entry names
}
one sig Create extends Entry {}  -- version 0: an empty database
sig Abort extends Entry { victim: one Transaction }
sig Tag extends Entry { names: one Version }

one sig Lake {
  var entries: Version -> lone Entry,          -- the files of the timeline
  var ratified: Version -> lone Entry,         -- what was first put at a version: known to nobody, to compare with
  var log: Table -> Version -> lone Transaction -- what is published in a table's log
}
var sig Told in Entry {}          -- its process has been told that it is in the timeline
var sig Stored in File {}         -- there
var sig Refused in Version {}     -- expired: the durable record says so, and nobody begins to read it
var sig Checkpointed in Version {}
var sig Doomed in File {}         -- what the clean-up found that nobody needs, and is about to delete
var sig Pinned in Reader { var pin: one Version, var saw: Table -> Transaction }

/** What is broken on purpose, if anything: a promise must then fail, or the model would prove nothing. */
abstract sig Flaw {}
one sig AbortsUnseen, PublishesAnywhere, ReadsTheNewest, LooksOnce, HasNoGrace extends Flaw {}
one sig Build { flaw: lone Flaw }

-- what follows from the state ------------------------------------------------------------------------------------------

fun head: lone Version { max[Lake.ratified.Entry] }
fun upTo[v: Version]: set Version { v.*(order/prev) }
fun landed: set Entry { Version.(Lake.ratified) }
fun at[e: Entry]: set Version { Lake.ratified.e }
fun committed[v: Version]: set Transaction { Transaction & upTo[v].(Lake.ratified) }
fun files[v: Version]: set File { committed[v].adds - committed[v].removes }
fun written[t: Transaction]: set Table { (t.adds + t.removes).of }
fun named[t: Table, v: Version]: lone Version { max[committed[v].slot[t]] }

/** Versions that must stay as they are: not expired, tagged, read by somebody, or the base of an open transaction. */
fun needed: set Version { (Lake.ratified.Entry - Refused) + (landed & Tag).names + Pinned.pin + Transaction.base }

/** Open, or dead with a request on its way that may still arrive. */
fun inFlight: set Transaction { { t: Transaction | some t.base or some t.judged } }
fun neededFiles: set File { { f: File | some v: needed | f in files[v] } + inFlight.adds }

/** An entry that is read, from a checkpoint or the first one on, has all entries since in the timeline. */
pred restorable[v: Version] {
  some v.(Lake.ratified)
  some c: upTo[v] | (c in Checkpointed or c = first) and all n: upTo[v] - order/prevs[c] |
    (n = c and n in Checkpointed) or some n.(Lake.entries)
}
pred readable[v: Version] { restorable[v] and v in needed }

-- what can happen ------------------------------------------------------------------------------------------------------

pred sameTimeline { entries' = entries and ratified' = ratified and Told' = Told and slot' = slot }
pred sameActors { judged' = judged and base' = base }
pred sameStore { Stored' = Stored and log' = log }
pred sameReaders { Pinned' = Pinned and pin' = pin and saw' = saw }
pred sameUpkeep { Refused' = Refused and Checkpointed' = Checkpointed and Doomed' = Doomed }

pred begin[t: Transaction] {
  t not in landed and no landed & victim.t   -- an id is used once
  no t.base and no t.judged and no t.adds & Stored
  t.removes in files[head]           -- it knows what it removes
  base' = base + t -> head and judged' = judged + t -> head
  Stored' = Stored + t.adds          -- its statements write files that nobody else sees
  log' = log and sameTimeline and sameReaders and sameUpkeep
}

/** Look at every entry since what it began with, and find nothing against putting one more. */
pred judge[e: Entry] {
  e not in landed and (no e.judged or e.judged != head)
  e in Transaction implies {
    some e.base and all v: upTo[head] - upTo[e.base] | some v.(Lake.entries)
    no landed & victim.e
    e.removes in files[head]
  }
  e in Abort implies (some e.victim.base and (e.victim not in landed or Build.flaw = AbortsUnseen))
  e in Tag implies (e.names in upTo[head] and readable[e.names] and (e.names not in Refused))
  judged' = judged ++ e -> head
  base' = base and sameTimeline and sameStore and sameReaders and sameUpkeep
}

/** Put the entry, if there is none of that version. The answer may be lost: then it is tried again. */
pred put[e: Entry] {
  some e.judged and some e.judged.(order/next)
  let n = e.judged.(order/next) {
    some n.(Lake.entries) implies (entries' = entries and ratified' = ratified and slot' = slot) else {
      entries' = entries + Lake -> n -> e
      ratified' = (some n.(Lake.ratified) implies ratified else ratified + Lake -> n -> e)
      slot' = slot + { t: e & Transaction, where: written[t], v: Version |
        v = min[Version - Transaction.slot[where]] }
    }
    n.(Lake.entries') = e and judged' = judged - e -> Version and Told' = Told + e and base' = base - e -> Version
    or n.(Lake.entries') != e and judged' = judged - e -> Version and Told' = Told and base' = base
    or judged' = judged and Told' = Told and base' = base
  }
  sameStore and sameReaders and sameUpkeep
}

/** A transaction rolls back, or its process dies; a request that was on its way may arrive later, or never. */
pred leave[t: Transaction] {
  some t.base or some t.judged
  base' = base - t -> Version
  judged' = judged or judged' = judged - t -> Version
  sameTimeline and sameStore and sameReaders and sameUpkeep
}

/** Anybody publishes what a ratified transaction did to a table, as often as he likes. */
pred publish[t: Transaction, where: Table] {
  t in landed and where in written[t]
  let v = (Build.flaw = PublishesAnywhere implies min[Version - Lake.log[where].Transaction] else t.slot[where]) {
    some v
    log' = (some Lake.log[where][v] implies log else log + Lake -> where -> v -> t)
  }
  Stored' = Stored and sameActors and sameTimeline and sameReaders and sameUpkeep
}

pred open_[r: Reader, v: Version] {
  r not in Pinned and readable[v] and (v not in Refused or v in (landed & Tag).names)
  Pinned' = Pinned + r and pin' = pin + r -> v and saw' = saw
  sameActors and sameTimeline and sameStore and sameUpkeep
}

/** Read a table's log as far as the database version says; before that, see that what it names is published. */
pred read[r: Reader, where: Table] {
  r in Pinned and no r.saw[where]
  let through = (Build.flaw = ReadsTheNewest implies Version else upTo[named[where, r.pin]]) {
    Build.flaw = ReadsTheNewest or (all t: committed[r.pin] | where in written[t] implies
      Lake.log[where][t.slot[where]] = t)
    saw' = saw + r -> where -> through.(Lake.log[where])
  }
  Pinned' = Pinned and pin' = pin and sameActors and sameTimeline and sameStore and sameUpkeep
}

pred close[r: Reader] {
  r in Pinned
  Pinned' = Pinned - r and pin' = pin - r -> Version and saw' = saw - r -> Table -> Transaction
  sameActors and sameTimeline and sameStore and sameUpkeep
}

pred checkpoint[v: Version] {
  restorable[v]
  Checkpointed' = Checkpointed + v
  Refused' = Refused and Doomed' = Doomed and sameActors and sameTimeline and sameStore and sameReaders
}

/** Say first, durably, which versions are expired. Those that are tagged are not chosen. */
pred expire {
  Refused in Refused' and some Refused' - Refused
  Refused' - Refused in upTo[head] - head - (landed & Tag).names
  Checkpointed' = Checkpointed and Doomed' = Doomed
  sameActors and sameTimeline and sameStore and sameReaders
}

/** Grace: whoever began before the record did, or judged for an entry that is to go, has ended. */
pred graceIsOver {
  Build.flaw = HasNoGrace or {
    no Pinned.pin & (Refused - (landed & Tag).names)
    no e: Entry | some e.judged and (e.judged in Refused or e.judged.(order/next) in Refused)
    no g: Tag | some g.judged and g.names in Refused
  }
}

/** Find what nobody needs: behind the grace, with a new look at tags, readers and open transactions. */
pred look {
  no Doomed and some Doomed' and Doomed' in Stored - inFlight.adds
  Build.flaw = LooksOnce implies no Doomed' & { f: File | some v: Lake.ratified.Entry - Refused | f in files[v] }
    else (graceIsOver and no Doomed' & neededFiles)
  Refused' = Refused and Checkpointed' = Checkpointed
  sameActors and sameTimeline and sameStore and sameReaders
}

/** Delete some of what was found, and perhaps die. */
pred sweep {
  Stored' in Stored and some Stored - Stored' and Stored - Stored' in Doomed
  Doomed' = Doomed & Stored'
  Refused' = Refused and Checkpointed' = Checkpointed and log' = log
  sameActors and sameTimeline and sameReaders
}

/** Delete an entry that no version needs that is to stay: they are restored from checkpoints. */
pred forget[v: Version] {
  v in Refused and some v.(Lake.entries) and graceIsOver
  entries' = entries - Lake -> v -> Entry
  all n: needed | some c: Checkpointed & upTo[n] | v in upTo[c]
  ratified' = ratified and Told' = Told and slot' = slot
  sameActors and sameStore and sameReaders and sameUpkeep
}

pred nothing { sameActors and sameTimeline and sameStore and sameReaders and sameUpkeep }

/** A new lake, or one in which one transaction has committed already: the traces are shorter. */
pred init {
  no judged and no base and no Told and no Refused and no Checkpointed and no Doomed and no Pinned
  Lake.entries[first] = Create and Lake.entries.Entry in first + first.(order/next) and first.(order/next).(Lake.entries) in Transaction
  Lake.ratified = Lake.entries
  no (landed & Transaction).removes
  slot = { t: landed & Transaction, where: written[t], v: first }
  Lake.log in { where: Table, v: first, t: landed & Transaction | where in written[t] }
  Stored = (landed & Transaction).adds
}

fact sense {
  all f: File | lone adds.f and f not in adds.f.removes     -- a new file's name is its own
  all t: Transaction, f: t.removes | some adds.f            -- and nobody removes what nobody added
  all disj a, b: Abort | a.victim != b.victim
}

fact traces {
  init
  always {
    nothing
    or (some t: Transaction | begin[t] or leave[t])
    or (some e: Entry - Create | judge[e] or put[e])
    or (some t: Transaction, where: Table | publish[t, where])
    or (some r: Reader | close[r] or (some v: Version | open_[r, v]) or (some where: Table | read[r, where]))
    or (some v: Version | checkpoint[v] or forget[v])
    or expire or look or sweep
  }
}

-- what is promised -----------------------------------------------------------------------------------------------------

/** A version once ratified never changes: whoever finds an entry there finds the one that was ratified. */
pred ratifiedNeverChanges { always (Lake.entries in Lake.ratified and Lake.ratified in Lake.ratified') }

/** An entry is at one version at most, and who was told that it is there was told the truth. */
pred committedOnce { always ((all e: Entry | lone at[e]) and Told in landed) }

/** A transaction is committed, or ended by an abort, and never both. */
pred neverBoth { always no a: Abort | a + a.victim in landed }

/** What a reader sees of a table is what was committed at its version: of each transaction all, or nothing. */
pred allOrNothing {
  always all r: Pinned, where: Table | some r.saw[where] implies
    r.saw[where] = { t: committed[r.pin] | where in written[t] }
}

/** A table's log has each transaction at the version that its entry names, and there alone. */
pred publishedOnce { always all where: Table, v: Version | Lake.log[where][v] in { t: landed & Transaction | t.slot[where] = v } }

/** What is kept, tagged, read or open has its entries and its files; with `ratifiedNeverChanges`, no others. */
pred keptIsThere {
  always all v: needed | restorable[v] and files[v] in Stored
  always { t: Transaction | some t.base }.adds in Stored
}

check RatifiedNeverChanges { no Build.flaw implies ratifiedNeverChanges }
  for 3 but 1 Table, 1 Reader, 4 Version, 4 Entry, 1..10 steps expect 0
check CommittedOnce { no Build.flaw implies committedOnce }
  for 3 but 1 Table, 1 Reader, 4 Version, 4 Entry, 1..10 steps expect 0
check NeverBoth { no Build.flaw implies neverBoth }
  for 3 but 1 Table, 1 Reader, 4 Version, 4 Entry, 1..9 steps expect 0
check AllOrNothing { no Build.flaw implies allOrNothing }
  for 3 but 2 Table, 1 Reader, 4 Version, 3 Entry, 1..9 steps expect 0
check PublishedOnce { no Build.flaw implies publishedOnce }
  for 3 but 2 Table, 1 Reader, 4 Version, 4 Entry, 1..8 steps expect 0
check KeptIsThere { no Build.flaw implies keptIsThere }
  for 3 but 2 File, 1 Table, 1 Reader, 1 Tag, 4 Version, 4 Entry, 1..8 steps expect 0

-- broken on purpose: each of these must be found ------------------------------------------------------------------------

check FindsAbortsUnseen { Build.flaw = AbortsUnseen implies neverBoth }
  for 3 but 1 Table, 1 Reader, 4 Version, 4 Entry, 1..9 steps expect 1
check FindsPublishesAnywhere { Build.flaw = PublishesAnywhere implies publishedOnce }
  for 3 but 2 Table, 1 Reader, 4 Version, 4 Entry, 1..8 steps expect 1
check FindsReadsTheNewest { Build.flaw = ReadsTheNewest implies allOrNothing }
  for 3 but 2 Table, 1 Reader, 4 Version, 3 Entry, 1..9 steps expect 1
check FindsLooksOnce { Build.flaw = LooksOnce implies keptIsThere }
  for 3 but 2 File, 1 Table, 1 Reader, 1 Tag, 4 Version, 4 Entry, 1..8 steps expect 1
check FindsHasNoGrace { Build.flaw = HasNoGrace implies (ratifiedNeverChanges and committedOnce) }
  for 3 but 1 Table, 1 Reader, 4 Version, 4 Entry, 1..10 steps expect 1

-- and what must be possible, or the promises would be kept by doing nothing -----------------------------------------------

run expiresAndReadsOn {
  no Build.flaw
  some t: Transaction | eventually (t in Told and t.removes != none)
  eventually some v: Version | v in Refused and no v.(Lake.entries) and some v.(Lake.ratified)
  eventually some File & (landed & Transaction).adds - Stored
} for 3 but 1 Table, 1 Reader, 4 Version, 4 Entry, 1..12 steps expect 1

run tagKeepsWhatExpired {
  no Build.flaw
  eventually some g: Tag & landed, r: Pinned | g.names = r.pin and r.pin in Refused and some r.saw
} for 3 but 1 Table, 1 Reader, 4 Version, 4 Entry, 1..12 steps expect 1
