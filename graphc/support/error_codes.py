"""Every error code with its title and its entry for `graphc explain`.

G01 language · G02 types and shapes · G03 differentiation · G04 placement and strategies ·
G05 program, plan, runtime · G06 data · G07 backends · G08 tracing · G09 laws of the IR.
An entry says the cause and the cure, in the user's terms.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One error: a title of a few words, and the explanation that `graphc explain` prints."""

    title: str
    text: str


CODES: dict[str, Entry] = {
    # -- G01 language -----------------------------------------------------------------------
    "G0101": Entry(
        "syntax error",
        "The text is no program of the language: something stands where the grammar has no place\n"
        "for it. The message says what could stand there. spec/language.md gives the grammar.",
    ),
    "G0102": Entry(
        "brackets do not match",
        "A bracket is never closed, closes nothing, or closes one of another kind. For a `{` that\n"
        "is never closed the indentation tells where it was probably meant to end.",
    ),
    "G0103": Entry(
        "bad character, number or string",
        "A character that has no meaning outside strings and comments, an invisible one, a number\n"
        "that is too large or misspelled, a string that does not end on its line, or an unknown\n"
        "escape in a string.",
    ),
    "G0104": Entry(
        "nested too deep",
        "Brackets, blocks or operators nest deeper than 200 levels. Name an inner part:\n"
        "`part = ...`, and use the name. Long sums and products are no nesting.",
    ),
    "G0105": Entry(
        "source too large",
        "A source file has at most 16 MiB and a million words and signs. Write what repeats as a\n"
        "loop or a function, and keep data in files of their own.",
    ),
    "G0106": Entry(
        "unreadable source",
        "The source file cannot be opened, or is not UTF-8 text.",
    ),
    "G0107": Entry(
        "statement in the wrong place",
        "A file holds import, const, fn, step, data, train and strategy; a step holds variables,\n"
        "assignments, updates, for, if, minimize and report; a function holds assignments, for, if\n"
        "and return.",
    ),
    "G0108": Entry(
        "no target",
        "Only a name can be declared or assigned to: `w`, `w[i]`, `enc.w`. `w[i]` declares a member\n"
        "of a family of variables; a part of a tensor cannot be assigned to.",
    ),
    "G0109": Entry(
        "expression without effect",
        "An expression alone on its line does nothing: all values are without side effects. Give\n"
        "the value a name, or report it.",
    ),
    "G0110": Entry(
        "bad list of arguments",
        "Positional arguments come before named ones, no name is given twice, and parameters with\n"
        "a default come last. Only the stages of a data source, such as `shuffle(seed=0)`, may\n"
        "follow its named arguments.",
    ),
    "G0111": Entry(
        "no strategy",
        "A strategy is a product of calls: `mirrored(4) * accumulate(2)`. A strategy without\n"
        "arguments, or one that the file defines, is its name alone. `graphc strategies` lists\n"
        "them.",
    ),
    "G0112": Entry(
        "function without a return at its end",
        "A function gives one value, at its end: its last statement is a `return`, or an `if` with\n"
        "an `else` whose branches all end in one. No `return` stands anywhere else.",
    ),
    "G0113": Entry(
        "defined twice",
        "Functions, constants, steps and imported files share one set of names in a file; data and\n"
        "strategies have one each; so do the parameters of a function, the inputs of a step and\n"
        "the variables of one loop.",
    ),
    "G0120": Entry(
        "no such name",
        "The name is neither defined in the program nor built in. `graphc ops` lists what is.",
    ),
    "G0121": Entry(
        "arguments do not fit",
        "A function, initialiser or optimizer is called with arguments that it does not take.",
    ),
    "G0122": Entry(
        "an operation on the wrong thing",
        "An operator, an index or an unpacking meets something that it does not work on.",
    ),
    "G0123": Entry(
        "not known at compile time",
        "Conditions, loops, dims and options are evaluated when the program is compiled. To choose\n"
        "between tensors, use where(condition, a, b).",
    ),
    "G0124": Entry("endless recursion", "A function calls itself without an end."),
    "G0125": Entry("no step", "A program has one `step` with a `minimize` or a `report`."),
    "G0126": Entry(
        "bad data, duration or batch",
        'Data is read by `data train = npz("file.npz", batch=256, shuffle(seed=0))`, and a duration\n'
        "is `train for 60 epochs` or `train for 500 steps`.",
    ),
    "G0127": Entry("bad import", "A file imports itself, or too many files are imported."),
    "G0128": Entry(
        "a dim of unknown length",
        "A named dim of an input is bound by the batch of the data or by a `const`.",
    ),
    "G0129": Entry(
        "bad variable",
        "A variable has a static shape and starts from an initialiser; only a `state` is written.",
    ),
    "G0130": Entry(
        "too much to evaluate",
        "Loops and functions are expanded when the program is compiled, and this one comes to more\n"
        "expressions than the limit. Loop over fewer entries, or let an operation on a whole tensor\n"
        "do the work.",
    ),
    # -- G02 types and shapes ---------------------------------------------------------------
    "G0201": Entry("unknown dtype", "A dtype is one of f64 f32 f16 bf16 i64 i32 u8 bool."),
    "G0202": Entry(
        "wrong dtype",
        "An operand has a dtype that the operation does not take, such as a float where an index\n"
        "is needed. Convert it: `cast(x, i32)` in .gc, `x.astype(np.int32)` in NumPy code.",
    ),
    "G0203": Entry(
        "shapes do not match",
        "The shapes of the operands do not fit the operation. Dims are aligned from the right and\n"
        "must be equal or 1; for a product, the last dim of the left operand must equal the\n"
        "first dim (or the last but one) of the right one.",
    ),
    "G0204": Entry(
        "tensor too large",
        "A tensor has more than 4 TiB or 32 dims, or a plan needs more memory than the machine has.\n"
        "The size is computed before anything is allocated. Check the dims; if they are meant, raise\n"
        "the limit of a plan with `--max-bytes`.",
    ),
    "G0205": Entry("no such dim", "A dim index lies outside -rank .. rank-1."),
    "G0206": Entry(
        "bad attribute",
        "An attribute of an operation has a value that it does not take; the message names both.",
    ),
    "G0207": Entry(
        "two names for one dim",
        "Two operands give the same dim different names, so that graphc cannot know how many\n"
        "entries are valid. Give both the same name in the inputs' types.",
    ),
    "G0208": Entry(
        "variable declared twice",
        "A variable is declared a second time with another type or kind. Give one of them another\n"
        "name. `step` is the counter that random numbers and optimizers read: it is a state, i64[].",
    ),
    "G0209": Entry(
        "too many nodes",
        "The step comes to more operations than a graph may have. Loops are unrolled: let an operation\n"
        "on a whole tensor do what a loop over its rows does.",
    ),
    # -- G03 differentiation ----------------------------------------------------------------
    "G0301": Entry(
        "the loss is no scalar",
        "`minimize` takes one float number. Reduce the per-example losses with `mean` or `sum`.",
    ),
    "G0302": Entry(
        "nothing to minimize over",
        "No parameter reaches the loss by a differentiable path: it was detached (stop_gradient,\n"
        "a comparison, an integer cast), or the names after `over` match no parameter.",
    ),
    "G0303": Entry(
        "a parameter does not reach the loss",
        "The parameter is not used in the loss, or only through operations without a gradient. It\n"
        "is left as it is at every step. This is a warning.",
    ),
    "G0304": Entry(
        "two updates write one variable",
        "A variable can be written once in a step: by one `minimize`, or by one `<-`.",
    ),
    "G0305": Entry(
        "the loss differs from replica to replica",
        "What is minimized is one value. In per-replica code each replica has its own loss: make one of\n"
        "them with replica_sum or replica_mean, or join_replicas(l) the examples' losses and take the\n"
        "mean over the whole batch.",
    ),
    "G0308": Entry(
        "no such order",
        "Contributions to one sum are added in the order add_n (all at once), tree (balanced pairs)\n"
        "or accumulate (a running sum); one word for every place where they meet, or a choice per\n"
        "place: fanin=..., turns=..., devices=... joined by commas.",
    ),
    "G0309": Entry(
        "the reduction does not agree with the loss",
        "What is minimized is the loss as it is written, over the global batch: `reduction sum` or\n"
        "`reduction mean` behind a `minimize` says which one is meant, and must agree with it. Write\n"
        "mean(...) or sum(...) into the loss.",
    ),
    "G0306": Entry(
        "no outer optimizer",
        'diloco(n, outer="nesterov(lr=0.7, momentum=0.9)") names one optimizer of the table of\n'
        "optimizers, with its arguments; `graphc ops` lists them.",
    ),
    "G0310": Entry(
        "the loss is divided by the number of examples twice",
        "A mean over the batch is divided once more, by the run-time count of examples or by a number\n"
        "that equals the batch's size. The gradients are then too small by that factor. Losses are\n"
        "global: nothing is to be scaled for devices or microbatches. This is a warning.",
    ),
    "G0311": Entry(
        "the mean over a variable's uses is not the gradient",
        "With `reduction fanin_mean` what flows back to a variable from each of its uses is averaged,\n"
        "not added. A variable that is used n times then moves by 1/n of the gradient of the loss, a\n"
        "variable that is used once as ever. This warning says that it was asked for.",
    ),
    "G0312": Entry(
        "a mean of means over groups of different sizes",
        "The loss averages over the batch what was averaged over groups before, and how large a group\n"
        "is depends on the data (a mask, weights). Entries of small groups then count more. To count\n"
        "all entries alike, divide once: sum(values * weights) / sum(weights). Where groups are meant\n"
        "to count alike, this warning can be ignored.",
    ),
    "G0313": Entry(
        "no such choice for sparse gradients",
        "Gradients of tables that are looked up are kept as rows with sparse `on`, as tables with `off`,\n"
        "and with `auto` as rows where fewer rows are looked up in a step than the table has.",
    ),
    "G0314": Entry(
        "a table is looked up, and used as a whole too",
        "What flows back from a lookup is some rows, but what flows back from the other use is a whole\n"
        "table (tied weights, a penalty on all weights). Their sum is a table: it is computed, sent and\n"
        "applied as one, and nothing is saved. This is a warning; `off` for the variable silences it.",
    ),
    "G0315": Entry(
        "sparse is on for what is not looked up",
        "Rows of a table are looked up along its first dim, by `embedding`, `take` or an index, with the\n"
        "batch as the first dim of the indices. Only then is the gradient a few rows.",
    ),
    # -- G04 placement and strategies -------------------------------------------------------
    "G0401": Entry(
        "no such strategy",
        "`graphc strategies` lists the strategies. They combine with `*`: mirrored(4) * accumulate(2).",
    ),
    "G0402": Entry(
        "bad arguments of a strategy",
        "The strategy is known, its arguments are not right; the message says which.",
    ),
    "G0404": Entry(
        "a variable can't be cut like this",
        "tensor_split names a dim that the variable does not have, or a glob that matches no\n"
        "variable, or a dim with fewer entries than devices.",
    ),
    "G0441": Entry(
        "more parts than leaves",
        "reproducible(slots=n) cuts the batch into n leaves, and devices own whole leaves: devices\n"
        "times microbatches may be n at most. The number of slots is fixed for a run (with other\n"
        "slots the sums are other trees, and the bits differ), so choose the largest that you mean\n"
        "to use.",
    ),
    "G0442": Entry(
        "replicas that step alone can't be reproducible",
        "Under local_sgd, diloco and an asynchronous parameter server every replica makes updates of\n"
        "its own: the result depends on their number by its meaning, not by rounding.",
    ),
    "G0405": Entry(
        "there is no batch to cut",
        "The strategy cuts the batch over devices or turns, but no input of the step has a batch: all\n"
        "their dims are constants. The result is right, and every device does all the work. Name\n"
        "the first dim, as in x: f32[batch, 64], and let the data say how long it is. A traced\n"
        "function loses its batch where it asks for len(x); x.shape[0] keeps it.",
    ),
    "G0406": Entry(
        "over the memory limit",
        "The plan's peak memory per device is over the limit given with `--peak`. Cut the variables\n"
        "with tensor_split(n), or the batch with accumulate(k) or mirrored(n).",
    ),
    "G0451": Entry(
        "devices that are no divisor of the grid's tiles",
        "With `reproducible`, every dim that tensor_split may cut is `tiles` blocks, and a device\n"
        "holds a whole number of them that is a subtree of their tree: tensor_split(n) needs an n\n"
        "that divides the tiles. tiles is a power of two and fixed for the run: choose the largest\n"
        "n that the run shall ever have.",
    ),
    "G0452": Entry(
        "a cut outside the grid's tiles",
        "With `reproducible`, a variable can be cut along a dim only where every sum and product over\n"
        "that dim is computed in fixed blocks. The dim is left out by the grid's own `cut`, or it\n"
        "can't be made of that many blocks of one length (the last may be shorter).",
    ),
    "G0466": Entry(
        "a loss that is scaled by the number of replicas",
        "Losses mean what they say over the global batch, on any number of devices and microbatches,\n"
        "and so do their gradients. A factor of replica_count(), or a division by it, makes the result\n"
        "depend on the strategy. In per-replica code replica_mean(v) is the mean over the replicas.\n"
        "This is a warning.",
    ),
    "G0467": Entry(
        "clipped before the sum over replicas",
        "Each replica bounds what it has of its own (a gradient, a norm), and the sum or the mean of the\n"
        "bounded values is taken. That is not the bounded sum, and changes with the number of devices.\n"
        "Clip behind replica_sum or replica_mean, or let `minimize` clip the whole gradient:\n"
        "minimize loss with clip_by_global_norm(1.0) | sgd(0.1). This is a warning.",
    ),
    "G0468": Entry(
        "two loss scales of one name",
        "Each loss is scaled by itself: an overflow in one gradient says nothing of the other. Where\n"
        "several `minimize` scale their losses, each names the state that is its scale:\n"
        'loss_scale(state="critic_scale") | sgd(0.1).',
    ),
    "G0475": Entry(
        "the staleness bound keeps workers waiting",
        "A push is applied when at most `staleness` updates were made since its worker pulled. Each\n"
        "push that is under way becomes such an update for the others, so at most staleness + 1\n"
        "workers can compute at a time. Raise the bound, or use fewer workers.",
    ),
    "G0476": Entry(
        "servers without variables",
        "Variables are dealt over the servers by size, and those whose updates need each other go\n"
        "together. There are more servers than such groups: the last ones do nothing.",
    ),
    "G0477": Entry(
        "few updates for many workers",
        "Workers push gradients of variables that are some updates old. With few updates in all,\n"
        "most are such: take smaller batches, more epochs, or fewer workers.",
    ),
    "G0481": Entry(
        "replicas write one variable, each its own value",
        "A variable without an aggregation has one value, and per-replica code would write as many as\n"
        'there are replicas. Declare what they come to (`state m: f32[] = zeros() { aggregate="mean" }`:\n'
        "sum, mean or only_first_replica), make one value of them before the write, or let each replica\n"
        'keep its own (`{ on="never" }`).',
    ),
    "G0482": Entry(
        "a result differs from replica to replica",
        "Reports and outputs are one value. Behind per_replica(x) each replica has its own: make one of\n"
        "them with replica_sum(v), replica_mean(v) or first_replica(v); join_replicas(v) puts the batch\n"
        "together again.",
    ),
    "G0483": Entry(
        "a word of per-replica code in the wrong place",
        "replica_sum, replica_mean, first_replica and join_replicas lead from what each replica has to a\n"
        "global value. The first three take values without a batch, the last one those with it.",
    ),
    "G0484": Entry(
        "a mean of means",
        "replica_mean of a mean over each replica's own examples gives every replica the same weight,\n"
        "however few examples it has (a last short batch, a batch that does not divide). It is what\n"
        "Keras does under its strategies. Their replica_sum is as many times the mean as there are\n"
        "replicas. The mean over the whole batch is mean(x), without per_replica.",
    ),
    "G0485": Entry(
        "per-replica code needs the whole batch",
        "A replica's part of the batch has a length that is known at run time only. It can be computed\n"
        "with example by example and reduced; sorted, sliced or paired with itself it can't be.",
    ),
    "G0486": Entry(
        "an aggregation that can't be",
        "aggregate is none, sum, mean or only_first_replica; on is write, read or never. Means are of\n"
        "floats. What is aggregated on read says how.",
    ),
    "G0487": Entry(
        "a replica's own variable, written once per microbatch",
        "Under accumulate(k) a replica is one microbatch of one device, so that k microbatches on one\n"
        "device mean what k devices mean. A device keeps one copy of a variable, not one for each of its\n"
        "microbatches: the copies would have to take turns in it, and each would read what another one\n"
        'wrote. With on="write" the device has the one value that all of them come to, and accumulate\n'
        "makes no difference. Or run the step without accumulate.",
    ),
    "G0488": Entry(
        "a sum over replicas that holds the variable itself",
        '`n <- n + d` with { aggregate="sum" } adds the d of all replicas to n. In any other form each\n'
        "replica's value holds n, and their sum would hold it once for each.",
    ),
    "G0489": Entry(
        "a replica's own variable in global code",
        'A state with { on="never" } has no global value. Use it beside per-replica values, or make one\n'
        "value of per_replica(state).",
    ),
    "G0490": Entry(
        "an order of sums that a reproducible run does not allow",
        "reproducible() makes every sum over turns and devices one balanced tree over the leaves of the\n"
        "batch, whatever the devices: that is where equal bits come from. Another order for them can't\n"
        "be chosen. Orders at `fanin` may be.",
    ),
    # -- G05 program, plan, runtime ---------------------------------------------------------
    "G0501": Entry(
        "a loop that uses what it gives",
        "A value that is known only after the last microbatch is used in a turn of the same loop:\n"
        "in a graph written by hand, where a `keep` and a `recall` are missing, or where the mesh has\n"
        "an axis over space between two over time, and a value is gathered over one of them, and\n"
        "sent before it is gathered over the other. A strategy's axes over time stand side by side.",
    ),
    "G0502": Entry(
        "a result is not whole",
        "An output would be only a part of the value on each device. A conversion is missing: a\n"
        "defect of graphc, or of a hand-written graph.",
    ),
    "G0503": Entry(
        "microbatches can't be streamed",
        "`step` was given an iterator of microbatches, but the step needs the number of examples\n"
        "before the last one has come, or gives a result for every example. Give it the whole\n"
        "batch at once. (A step with several loops keeps all microbatches until its end.)",
    ),
    "G0505": Entry(
        "the variables are no longer valid",
        "A step failed after it had begun to write variables, so some are new and some are old.\n"
        "Load the last checkpoint (or initial values) to go on.",
    ),
    "G0509": Entry(
        "variables can't be read or written",
        "The file of variables (.safetensors) is missing, damaged, or can't be written. It has a\n"
        "checksum of all that is in it: a file that was changed, cut off or made by another program is\n"
        "refused. `--load`, or load(partial=True), takes variables from any .safetensors file.",
    ),
    "G0506": Entry(
        "index out of range",
        "A gather or scatter met an index outside its table at run time, or cross_entropy a label that\n"
        "is no class; the message names the value and its row of the whole batch. Look at the data:\n"
        "labels often start at 1, or a token id is the size of the vocabulary. Labels that mean 'none'\n"
        "are named by `ignore_index`. Nothing was written: the step can be made again without them.",
    ),
    "G0507": Entry(
        "the plan can't be read",
        "The file is no plan, was cut off, or was changed after it was written (its checksum does not\n"
        "fit, or a field has a value that it can't have). Compile it again.",
    ),
    "G0508": Entry(
        "the plan is of another version",
        "The plan was written by a graphc whose plans are not the same. Compile it again with this\n"
        "one.",
    ),
    "G0510": Entry(
        "the values do not fit the variables",
        "Every variable needs one value of its global shape and of a dtype that casts to its own; of a\n"
        "checkpoint that is taken up, one of its own dtype.",
    ),
    "G0511": Entry(
        "no such program",
        "An engine runs the programs that it was given, which share one mesh and one set of variables.",
    ),
    "G0512": Entry(
        "a file can't be written",
        "The folder does not exist, the file or the folder may not be written to, or there is something\n"
        "else than a regular file: a folder, a device, a pipe or a socket is never replaced. A symbolic\n"
        "link is followed, and the file that it means is replaced.",
    ),
    "G0521": Entry(
        "this is no schedule",
        "A schedule is what `graphc run --record FILE` writes: a line of JSON that says what the run\n"
        "was, then one for each push, in the order in which they were applied.",
    ),
    "G0522": Entry(
        "a schedule of another run",
        "A replay gives the same bits, so it must be of the same step, strategy, data and first\n"
        "values, on the same backend. The message says what differs.",
    ),
    "G0523": Entry(
        "the schedule does not fit",
        "The schedule was made with another number of servers, or uses batches that this run does\n"
        "not have: replay it with the strategy and the number of steps that it was recorded with.",
    ),
    "G0524": Entry(
        "a server failed",
        "A server keeps the only copy of its variables. What was done since the last checkpoint is\n"
        "lost; the message names the variables. Load values, or resume from a checkpoint.",
    ),
    "G0525": Entry(
        "there is no schedule",
        "Only an asynchronous strategy has a schedule: parameter_server(workers, servers,\n"
        "staleness=k) with k > 0, or none. All others do the same each time anyway.",
    ),
    "G0526": Entry(
        "workers are lost again and again",
        "A worker that is lost is replaced, and its batch is given to another. Here that happened\n"
        "many times without one update in between: the batch, or the machine, is at fault.",
    ),
    "G0527": Entry(
        "other kernels than those of the checkpoint",
        "The same bits are promised for one set of kernels: backend, BLAS, instruction set, versions.\n"
        "A run with `reproducible` that is resumed with others goes on, and what it reports then says\n"
        "from which step on its bits may differ. Without `reproducible` there is no such promise.",
    ),
    "G0528": Entry(
        "a checkpoint that does not name its kernels",
        "It was written before checkpoints kept them. The run goes on; whether the steps before have\n"
        "the bits that this machine would give them is not known.",
    ),
    "G0529": Entry(
        "another grid than that of the checkpoint",
        "The slots and tiles of `reproducible` decide in which order all sums are taken, so they are\n"
        "fixed for a run. The run goes on; to keep its bits, resume it with the grid that the\n"
        "message names.",
    ),
    "G0530": Entry(
        "another seed than that of the checkpoint",
        "The step draws random numbers (dropout, noise), and they follow from its seed. The run goes\n"
        "on with other numbers than an unchanged run would have. `graphc run --resume FILE.safetensors`\n"
        "of a .gc file takes the seed of the checkpoint where no --seed is given.",
    ),
    "G0531": Entry(
        "not every variable starts from the file",
        "`--load`, or load(partial=True), takes the params and states that the file has under the same\n"
        "name and with the same shape and dtype. The others start as the program says.",
    ),
    "G0532": Entry(
        "an epoch that goes on in another order",
        "A checkpoint says how many examples of an epoch were read. With other data, another shuffle or\n"
        "another number of replicas that share files, others are left than were not read.",
    ),
    "G0561": Entry(
        "the devices disagree",
        "Two devices made different calls where they had to make the same one, or wait for each\n"
        "other. The compiler gives all devices one list of calls, so this is a defect of graphc\n"
        "or of a hand-written program; the message names the devices and their calls.",
    ),
    "G0562": Entry(
        "a device did not come in time",
        "A device was not at a collective by the deadline. The message names it and the call; the\n"
        "help says what each device was doing. It may hang, or be slower than the deadline allows.",
    ),
    "G0563": Entry(
        "the session can't run",
        "The session is closed, in the middle of another run, or lost a device in an earlier run.\n"
        "Open a new one.",
    ),
    "G0564": Entry(
        "a trainer is used in a forked process",
        "A fork copies the memory of a process, but only one of its threads: the threads of devices\n"
        "stay in the parent, and so does the trainer. Make a new trainer in the child, or start it by\n"
        "'spawn'. The parent's trainer is as it was; children that do not use it do no harm.",
    ),
    "G0535": Entry(
        "copies of another number of replicas",
        'A state with { on="never" } is saved with a copy for each replica, in a leading dim. It can be\n'
        "loaded where there are as many, or as one value for all of them.",
    ),
    "G0536": Entry(
        "replicas do not agree",
        'Under the check of replicas, what each writes to a variable with aggregate="only_first_replica"\n'
        "is compared with what the first one writes.",
    ),
    "G0537": Entry(
        "a value that is not finite",
        "A step was watched (`graphc run --debug-nans`, debug_nans=True, GRAPHC_DEBUG_NANS=1), and a\n"
        "result or a variable came out as NaN or infinite. The message names the first node that made\n"
        "such a value of finite operands, and its line. The variables are as before the step.",
    ),
    # -- G06 data ---------------------------------------------------------------------------
    "G0601": Entry("no such data source", "Data comes from `npz(path, ...)` or `csv(path, ...)`."),
    "G0602": Entry(
        "the data can't be read",
        "The file is missing, cut off, or of another kind. Paths are relative to the .gc file.",
    ),
    "G0603": Entry(
        "data of the wrong shape",
        "All arrays of a dataset have the same number of examples in their first dim, and the other\n"
        "dims that the step's inputs declare.",
    ),
    "G0604": Entry(
        "an entry is missing from the data",
        "Every input of the step is read from the array of the same name.",
    ),
    "G0606": Entry("nothing to evaluate on", "The test data has no example."),
    "G0607": Entry(
        "no data", 'A program that is run names its data: `data train = npz("x.npz", batch=256)`.'
    ),
    "G0605": Entry(
        "data of the wrong dtype",
        "Values are cast only where none of them changes (u8 to f32, i64 to i32 that fit).",
    ),
    "G0611": Entry(
        "an entry is missing from the batch",
        "A batch is a dict with an array for every input of the step.",
    ),
    "G0612": Entry(
        "an entry that the step does not take",
        "A batch has the inputs of the step and nothing else; leave the others out.",
    ),
    "G0613": Entry(
        "a batch entry of the wrong shape",
        "The array must have the shape that the input declares; only a dim with a name (`batch`) may\n"
        "have fewer entries, and only if the step was compiled for short batches.",
    ),
    "G0614": Entry(
        "a batch entry of the wrong dtype",
        "Values are cast only within their kind (f64 to f32, i64 to i32 where all fit): floats do not\n"
        "become integers by themselves.",
    ),
    "G0615": Entry(
        "more examples than the batch",
        "The batch size is fixed when the step is compiled; fewer examples are fine, more are not.",
    ),
    "G0616": Entry(
        "the entries differ in their number of examples",
        "All entries of one batch that share a named dim have the same number of entries in it.",
    ),
    "G0617": Entry(
        "an empty batch",
        "A step needs at least one example, and a stream at least one microbatch.",
    ),
    "G0618": Entry(
        "too many microbatches",
        "`accumulate(k)` takes at most k microbatches per step.",
    ),
    "G0620": Entry(
        "a batch out of proportion",
        "Accumulating microbatches makes batches of any size possible. With fewer than 20 updates\n"
        "an epoch, or a batch of more than a tenth of the data, a model seldom trains well. This\n"
        "is a warning: nothing is changed.",
    ),
    "G0622": Entry(
        "too few files to share",
        'Under `shard("file")` every replica reads files of its own, so there must be at least one\n'
        "for each of them.",
    ),
    "G0623": Entry(
        "parts that no mesh cuts",
        "A mesh cuts a batch into parts of one length, of which only the last ones may be shorter.\n"
        "Streams that give each replica its own part must give parts of such lengths.",
    ),
    # -- G07 backends -----------------------------------------------------------------------
    "G0701": Entry(
        "no such backend",
        "Backends and transports are plug-ins; `graphc backends` lists those that are installed.",
    ),
    "G0702": Entry(
        "the backend can't run here",
        "Something that the plug-in needs is missing on this machine; the message says what.",
    ),
    "G0703": Entry(
        "a broken plug-in",
        "The package of a plug-in is installed, but importing it fails. Mend or uninstall it.",
    ),
    "G0704": Entry(
        "two plug-ins of one name",
        "Two installed packages bring a plug-in of the same name. Uninstall one of them.",
    ),
    "G0705": Entry(
        "a backend computes a wrong type",
        "A backend's kernel gave a result of another shape or dtype than the operation has: a defect\n"
        "of the backend. `pytest --pyargs graphc.testing --backend NAME` finds such kernels.",
    ),
    "G0706": Entry(
        "no such instruction set",
        "GRAPHC_TARGET names what the NumPy backend compiles for: `host` (all that this processor\n"
        "has), or a level that it must have: of x86-64 `avx512`, `avx2`, `baseline`; of aarch64\n"
        "`baseline`.",
    ),
    "G0707": Entry(
        "a wrong value in the environment",
        "An environment variable that graphc reads has a value that means nothing: GRAPHC_NATIVE and\n"
        "GRAPHC_CHECK_MEMORY are 0 or 1; GRAPHC_THREADS, GRAPHC_DEBUG and GRAPHC_VERIFY are numbers.\n"
        "Leave it out for the default.",
    ),
    "G0708": Entry(
        "the cache can't be used",
        "What was compiled is kept on disk (GRAPHC_CACHE, else the platform's cache folder) and run when\n"
        "it is wanted again, so the folder must be the user's own: where others can write to it, it is\n"
        "not used. The run goes on without it, and compiles anew each time.",
    ),
    # -- G08 tracing ------------------------------------------------------------------------
    "G0801": Entry(
        "a Python decision on a traced value",
        "`if`, `while`, `and`, `or`, `not`, `in`, `min` and `max` need to know a value while the step\n"
        "is being traced, but a traced value has none yet: it stands for every batch to come. Choose\n"
        "entry by entry with `np.where(condition, a, b)`, `np.maximum`, `np.logical_and`. To tell\n"
        "training from evaluation, ask `graphc.training()`, which is a Python bool.",
    ),
    "G0802": Entry(
        "this NumPy function can't be traced",
        "`graphc.frontend.numpy.table` does not have the function. spec/numpy.md lists those that\n"
        "trace. Where the result's shape depends on the values (`unique`, `nonzero`), there is no\n"
        "static graph for it: mask with `np.where` and reduce instead. Functions of constants only\n"
        "may be called freely: they run once, while tracing.",
    ),
    "G0803": Entry(
        "a traced value is no number yet",
        "int(), float(), .item(), .tolist(), np.asarray(), range() and list indices need a number;\n"
        "a traced value stands for every batch to come. Stay in NumPy functions; look up with\n"
        "`np.take(table, index, axis=0)`; hand values out with `graphc.report(name, value)`.",
    ),
    "G0804": Entry(
        "a change in place that can't be traced",
        "Writing entries (`x[i] = v`) changes memory, and a graph has none. Build the result instead:\n"
        "`np.where(mask, v, x)`, `np.concatenate`, `np.stack`. `x += y` and `out=` are traced as long\n"
        "as no other name shares the array's memory (a slice, a reshape or a transpose of it).",
    ),
    "G0805": Entry(
        "an index that can't be traced",
        "Indices are integers, slices, None, ..., integer arrays. A boolean mask gives a result whose\n"
        "shape depends on the values: use `np.where(mask, x, 0)` and reduce.",
    ),
    "G0806": Entry(
        "parameters or a batch of the wrong form",
        "Parameters, state and batches are nested dicts, lists, tuples, named tuples or dataclasses\n"
        "of NumPy arrays. All arrays of a batch have the same first dim, unless named in `whole=`.",
    ),
    "G0807": Entry(
        "outside of a traced function",
        "graphc.report, graphc.state, graphc.minimize and graphc.nn record nodes of the step that is\n"
        "being traced. Call them inside the function that graphc.compile or graphc.trace is given.",
    ),
    "G0808": Entry(
        "a value of another trace",
        "A traced value was kept (in a global, an attribute, a default argument) and used after its\n"
        "own trace had ended. Return it, or keep it as `graphc.state`.",
    ),
    "G0809": Entry(
        "the function's result has the wrong form",
        "A traced function returns the loss, or (loss, metrics); with state, (loss, new_state) or\n"
        "(loss, new_state, metrics). The loss is a float scalar, metrics a dict of named values, and\n"
        "new_state has the form, shapes and dtypes of the state.",
    ),
    "G0810": Entry(
        "an argument that can't be traced",
        "The NumPy function traces, but not with this argument; the message names both.",
    ),
    "G0819": Entry(
        "nothing to minimize in the traced step",
        "graphc.compile makes a training step: give it an optimizer, or call graphc.minimize.",
    ),
    # -- G09 laws of the IR -----------------------------------------------------------------
    "G0901": Entry(
        "the text of a graph is malformed",
        "The text does not follow the grammar of spec/ir.md; the caret is where it stops doing so.",
    ),
    "G0902": Entry(
        "not the text of a graph",
        "The text of a graph begins with `graphc-ir 1`: the version of the format. A text of\n"
        "another version has to be made anew with this graphc.",
    ),
    "G0903": Entry(
        "defined twice",
        "A name is defined once: a node, a variable, an output, an update, or an attribute of one\n"
        "node. Rename one of the two.",
    ),
    "G0904": Entry(
        "unknown op or attribute",
        "The text of a graph names an op, a record or an attribute that graphc does not have.\n"
        "`graphc ops` lists the ops with their attributes.",
    ),
    "G0905": Entry(
        "a value that does not fit",
        "A value in the text of a graph is not of the kind that its place takes: a string where a\n"
        "number stands, an attribute that is missing, a state that no axis can have.",
    ),
    "G0906": Entry(
        "the text of a graph is too large",
        "The text is longer, or its brackets nest deeper, than any real graph needs.",
    ),
    "G0907": Entry(
        "a value without text",
        "An attribute holds an object that has no text form. Attributes are numbers, strings,\n"
        "dtypes, extents, tensor types, tuples, records (`graphc.ir.op.record`) and graphs.",
    ),
    "G0911": Entry(
        "a name that is not its own",
        "Every node and variable of a graph stands under its own name.",
    ),
    "G0912": Entry(
        "used before it is defined",
        "A node's operands are defined before it; a graph has no cycles.",
    ),
    "G0913": Entry(
        "a type that can't be",
        "A dim is negative, or a dim of run-time length is no multiple of its unit.",
    ),
    "G0914": Entry(
        "a variable that belongs nowhere",
        "A variable is a param, a state, or a slot that belongs to another variable.",
    ),
    "G0915": Entry(
        "a read that fits no variable",
        "A node reads a variable that does not exist or has another type, or two nodes read the\n"
        "same one.",
    ),
    "G0916": Entry(
        "wrong number of operands",
        "An op has more or fewer operands than it takes.",
    ),
    "G0917": Entry(
        "run-time dims differ",
        "A dim of run-time length (such as `batch`) lost its name, or has another one than its\n"
        "operands give it, so that its valid entries could not be counted.",
    ),
    "G0918": Entry(
        "declared and made types differ",
        "The shape and dtype written at a node are not those that its op makes of its operands.",
    ),
    "G0919": Entry(
        "an end that does not exist",
        "An output, an update or an objective names a node or a variable that does not exist.",
    ),
    "G0920": Entry(
        "an update of another type",
        "The new value of a variable has not the variable's shape, dtype and run-time dims.",
    ),
    "G0921": Entry(
        "a placement that can't be",
        "A placement names an axis that the mesh does not have, or a state that the tensor\n"
        "can't be in: a split of a dim that it does not have, a partial sum of bools, a home\n"
        "over time.",
    ),
    "G0931": Entry(
        "an operand lies elsewhere",
        "After partition no node may need an operand in another placement than it has: every\n"
        "conversion is a node of its own.",
    ),
    "G0932": Entry(
        "a partial value meets a nonlinear op",
        "A partial value is the sum (max, min) of what the places hold. Only a linear op may be\n"
        "run on the parts: f(a + b) is f(a) + f(b) for it. Anything else needs a reduction\n"
        "before it.",
    ),
    "G0933": Entry(
        "no signature fits",
        "Along a mesh axis, an op runs on operands that lie as one of its signatures says; the\n"
        "help lists them. A conversion is missing before the node, or its own placement is\n"
        "wrong.",
    ),
    "G0934": Entry(
        "cut inside a group",
        "A dim that merges several factors (by a reshape) can only be cut between whole groups\n"
        "of the minor ones, or a part would hold pieces of entries of the other shape.",
    ),
    "G0935": Entry(
        "a conversion that does not convert",
        "A conversion takes its operand along one axis from the state that it says to the state\n"
        "that it says, and changes nothing else.",
    ),
    "G0936": Entry(
        "axes converted out of order",
        "Where several axes split one dim, the minor one is joined first and cut last: the\n"
        "parts of the major one are not in one piece otherwise.",
    ),
    "G0937": Entry(
        "an unfinished value at the end",
        "A partial or varying value, or one of a single turn, would reach an output or an\n"
        "update. It has no one global value there: a conversion is missing.",
    ),
    "G0938": Entry(
        "an update that lies elsewhere",
        "A variable is read from, and its new value lies, where the variable lies.",
    ),
    "G0939": Entry(
        "a loop that uses what it gives",
        "A value that is there only after the last turn (an accumulated one) is used by a node of\n"
        "the same loop. The pass `loops` puts such a node into a later loop; in a graph written\n"
        "by hand a `keep` and a `recall` are missing.",
    ),
    "G0990": Entry(
        "no such pass",
        "`graphc passes` lists the passes. Options go in braces: differentiate{order=tree}.",
    ),
    "G0998": Entry(
        "a kernel reaches outside of its buffers",
        "With GRAPHC_CHECK_MEMORY=1 compiled steps look at every address that they load or store.\n"
        "One was not inside of the buffer that it belongs to: a defect of graphc, not of your\n"
        "program. The message names the nodes, the buffer and a file that replays it; please report\n"
        "it with that file.",
    ),
    "G0999": Entry(
        "graphc failed",
        "This is a defect of graphc, not of your program. The message names a file that replays it;\n"
        "please report it with that file.",
    ),
}
