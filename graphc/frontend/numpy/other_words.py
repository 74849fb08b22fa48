"""What users of other libraries write, and what to write here instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphc.frontend.numpy import table
from graphc.ir.registry import COMPOSITES
from graphc.support.caller import user_span
from graphc.support.calls import TOO_MANY
from graphc.support.errors import GraphcError, UnknownNameError, did_you_mean

_SAME = "leave it out: where a step runs is the strategy's matter, not the array's"
_GRADIENT = (
    "return the loss: graphc.compile(..., optimizer=...) differentiates it; for a gradient inside "
    "of the step write graphc.grad"
)
_NUMBER = "a traced value has no numbers yet: output values with graphc.report(name, value)"
_OUT = "write graphc.nn."

# Methods and attributes that arrays of torch, JAX and TensorFlow have.
METHODS: dict[str, str] = {
    **dict.fromkeys(("cuda", "cpu", "to", "device", "device_buffer", "pin_memory", "is_cuda",
                     "devices", "sharding", "block_until_ready", "addressable_data"), _SAME),
    **dict.fromkeys(("backward", "grad", "requires_grad", "requires_grad_", "grad_fn",
                     "retain_grad", "register_hook"), _GRADIENT),
    **dict.fromkeys(("detach", "detach_", "stop_gradient"), "write graphc.stop_gradient(x)"),
    **dict.fromkeys(("numpy", "eval", "tolist", "item"), _NUMBER),
    **dict.fromkeys(("contiguous", "clone", "is_contiguous"), "leave it out, or write x.copy()"),
    "view": "write x.reshape(...): a traced array has no memory",
    "view_as": "write x.reshape(y.shape)",
    "reshape_as": "write x.reshape(y.shape)",
    "expand": "write np.broadcast_to(x, shape)",
    "expand_as": "write np.broadcast_to(x, y.shape)",
    "unsqueeze": "write np.expand_dims(x, axis), or x[:, None]",
    "permute": "write x.transpose(1, 0)",
    "t": "write x.T",
    "H": "write x.T",
    "float": "write x.astype(np.float32)",
    "double": "write x.astype(np.float64)",
    "half": "write x.astype(np.float16)",
    "bfloat16": "write x.astype(ml_dtypes.bfloat16)",
    "long": "write x.astype(np.int64)",
    "int": "write x.astype(np.int32)",
    "bool": "write x != 0",
    "type": "write x.astype(dtype)",
    "type_as": "write x.astype(y.dtype)",
    "dim": "write x.ndim",
    "numel": "write x.size",
    "nelement": "write x.size",
    "get_shape": "write x.shape",
    "set_shape": "leave it out: every shape is known",
    "masked_fill": "write np.where(mask, value, x)",
    "masked_select": "write np.where(mask, x, 0) and reduce",
    "index_select": "write np.take(x, ids, axis=0)",
    "index_add": "write np.add.at, or x + graphc.nn.scatter_add(...)",
    "gather": "write np.take_along_axis(x, ids, axis=1)",
    "scatter": "write np.where with a mask, or graphc.nn.scatter_add",
    "scatter_add": "write graphc.nn.scatter_add(ids, x, dim=0, size=n)",
    "chunk": "write np.split(x, n, axis=0)",
    "clamp": "write np.clip(x, low, high)",
    "clamp_min": "write np.maximum(x, low)",
    "pow": "write x ** 2",
    "mm": "write x @ y",
    "bmm": "write x @ y",
    "matmul": "write x @ y",
    "mv": "write x @ y",
    "add": "write x + y",
    "sub": "write x - y",
    "mul": "write x * y",
    "div": "write x / y",
    "eq": "write x == y",
    "ne": "write x != y",
    "lt": "write x < y",
    "gt": "write x > y",
    "le": "write x <= y",
    "ge": "write x >= y",
    "neg": "write -x",
    "abs": "write np.abs(x)",
    "zero_": "write x[...] = 0",
    "fill_": "write x.fill(value)",
    "copy_": "write x[...] = y",
    "norm": "write np.linalg.norm(x, axis=-1)",
    "topk": "write -np.sort(-x, axis=-1)[..., :k]",
    "at": "write x[key] = value for x.at[key].set(value), np.add.at(x, key, value) for .add",
    "apply": "a method of graphc's arrays is NumPy's: call the function on x",
    "append": "write np.concatenate([x, y])",
    "to_numpy": "leave it out: x is an array",
    "iloc": "write x[i]",
    "loc": "write x[i]",
    "values": "leave it out: x is an array",
    "rename": "leave it out: the variable that you assign to names it",
}  # fmt: skip

# What graphc.nn calls otherwise.
FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(("CrossEntropyLoss", "cross_entropy_loss", "sparse_categorical_crossentropy",
                     "SparseCategoricalCrossentropy", "categorical_crossentropy",
                     "softmax_cross_entropy", "softmax_cross_entropy_with_integer_labels",
                     "CategoricalCrossentropy", "nll_loss", "NLLLoss"),
                    _OUT + "cross_entropy(logits, labels), and np.mean of it"),
    **dict.fromkeys(("BCELoss", "binary_crossentropy", "BinaryCrossentropy"),
                    _OUT + "binary_cross_entropy(p, targets), and np.mean of it"),
    **dict.fromkeys(("BCEWithLogitsLoss", "binary_cross_entropy_with_logits",
                     "sigmoid_binary_cross_entropy"),
                    _OUT + "sigmoid_cross_entropy(logits, labels), and np.mean of it"),
    **dict.fromkeys(("mse_loss", "MSELoss", "mean_squared_error", "MeanSquaredError", "l2_loss"),
                    _OUT + "mse(x, y), or np.mean((x - y) ** 2)"),
    **dict.fromkeys(("l1_loss", "L1Loss", "mean_absolute_error"),
                    _OUT + "mae(x, y), or np.mean(np.abs(x - y))"),
    **dict.fromkeys(("Linear", "Dense", "linear", "dense"),
                    "write graphc.layers.Dense(inputs, outputs), or graphc.nn.dense(x, w, b)"),
    **dict.fromkeys(("Module", "Sequential", "ModuleList", "Parameter", "Model", "Layer"),
                    "a model is a function of (params, batch), a dataclass with __call__, or "
                    "graphc.layers.Sequential"),
    **dict.fromkeys(("functional", "F"), "its functions are here: graphc.nn.relu, ..."),
    **dict.fromkeys(("Embedding",), _OUT + "embedding(table, ids); the table is a param"),
    **dict.fromkeys(("init",), "write graphc.init.he_normal()"),
    "lrelu": _OUT + "leaky_relu(x)",
    "swish": _OUT + "silu(x)",
    "hard_tanh": "write np.clip(x, -1, 1)",
    "tanh_": "write np.tanh(x)",
    "expit": _OUT + "sigmoid(x)",
    "Flatten": "write x.reshape(x.shape[0], -1)",
    "Dropout": _OUT + "dropout(x, rate=0.5)",
    "BatchNorm1d": _OUT + "batch_norm(x)",
    "BatchNorm2d": _OUT + "batch_norm(x)",
    "LayerNorm": _OUT + "layer_norm(x)",
    "MultiheadAttention": _OUT + "attention(q, k, v)",
    "scaled_dot_product_attention": _OUT + "attention(q, k, v)",
    "max_pool2d": _OUT + "max_pool(x, 2)",
    "avg_pool2d": _OUT + "avg_pool(x, 2)",
    "ReLU": _OUT + "relu(x)",
    "GELU": _OUT + "gelu(x)",
    "SiLU": _OUT + "silu(x)",
    "Tanh": "write np.tanh(x)",
    "Sigmoid": _OUT + "sigmoid(x)",
    "Softmax": _OUT + "softmax(x, axis=-1)",
}  # fmt: skip

# Keywords of arguments.
KEYWORDS: dict[str, tuple[str, ...]] = {
    "dim": ("axis",),
    "dims": ("axis",),
    "axes": ("axis",),
    "keepdim": ("keepdims",),
    "keep_dims": ("keepdims",),
    "reduction_indices": ("axis",),
    "p": ("rate",),
    "num_classes": ("n",),
    "depth": ("n",),
    "negative_slope": ("slope",),
    "alpha": ("slope",),
    "epsilon": ("eps",),
    "eps": ("epsilon",),
    "label": ("labels",),
    "target": ("labels", "targets"),
    "y_true": ("labels", "targets"),
    "y_pred": ("logits", "p"),
    "weight": ("table", "scale"),
    "input": ("x", "logits"),
    "training": (),
    "inplace": (),
}

# Functions of other packages, by their names without the package.
ELSEWHERE: dict[str, str] = {
    "logpdf": "write -0.5 * ((x - mu) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi) for "
    "the normal distribution",
    "pdf": "write np.exp(-0.5 * ((x - mu) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi)) for the "
    "normal distribution",
    "cdf": "write 0.5 * (1 + graphc.nn.erf((x - mu) / (sigma * np.sqrt(2)))) for the normal "
    "distribution",
    "erfc": "write 1 - graphc.nn.erf(x): small values lose digits",
    "ndtr": "write 0.5 * (1 + graphc.nn.erf(x / np.sqrt(2))): small values lose digits",
    "expit": "write graphc.nn.sigmoid(x)",
    "one_hot": "write graphc.nn.one_hot(ids, n)",
    **dict.fromkeys(("gammaln", "gamma", "loggamma", "digamma", "psi", "betaln", "beta", "poch",
                     "j0", "j1", "jv", "i0", "i1", "iv", "erfinv", "ndtri", "zeta", "hyp2f1"),
                    "there is no op for it: compute it outside of the step, or write "
                    "graphc.custom_op"),
    "tensor": "leave it out: x is an array of the step",
    "as_tensor": "leave it out: x is an array of the step",
    "asarray": "leave it out: x is an array of the step",
    "zscore": "write (x - x.mean(axis=0)) / x.std(axis=0)",
}  # fmt: skip


def of_method(name: str) -> str | None:
    """What to write in place of a method or attribute of another library's arrays."""
    if name in METHODS:
        return METHODS[name]
    bare = name.rstrip("_")
    if bare != name and (inner := of_method(bare) or of_function(bare)):
        return f"{inner}, and assign it: in place by x[...] = ..."
    if name in table.REFUSED_METHODS:
        return table.REFUSED_METHODS[name]
    return of_function(name)


def of_function(name: str) -> str | None:
    """What to write for a function of this name: NumPy's, graphc.nn's, or another one."""
    if name in table.NAMES:
        return f"write np.{name}(x)"
    known = name if name in COMPOSITES else name.lower()
    if name in FUNCTIONS or name in ELSEWHERE:
        return FUNCTIONS.get(name) or ELSEWHERE.get(name)
    return f"write graphc.nn.{known}(x)" if known in COMPOSITES or known in _OPS else None


_OPS = ("erf", "log1p", "logistic")  # ops without a composite of their name


def of_keyword(name: str, known: Sequence[str] = ()) -> str | None:
    """What an argument is called here; known: those that the function has, if that is known."""
    if name not in KEYWORDS:
        return did_you_mean(name, tuple(known))
    if not KEYWORDS[name]:
        return f"leave {name}= out"
    fits = [word for word in KEYWORDS[name] if word in known] or KEYWORDS[name][: not known]
    return f"here it is called {fits[0]}=" if fits else f"it takes {', '.join(known)}"


def of_error(error: object, known: Sequence[str] = ()) -> str | None:
    """What an argument is called here, where an error names one that there is not."""
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found:
        return of_keyword(found[1], known)
    missing = "missing a required argument" in str(error) and known
    return f"it takes {', '.join(known)}" if missing else None


def of_nn(name: str, known: tuple[str, ...]) -> str:
    """The help for a name that graphc.nn does not have."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name.lower() in known:
        return f"write graphc.nn.{name.lower()}(x)"
    if name in table.NAMES:
        return f"write np.{name}(x)"
    return ELSEWHERE.get(name) or did_you_mean(name, known) or "`graphc ops` lists them"


_TRAIN = "write graphc.compile(step, params, batch, optimizer=...), then trainer.fit(batches)"
_EXPORT = 'write trainer.to_onnx("model.onnx")'
_GRAPHC: dict[str, str] = {
    **dict.fromkeys(("no_grad", "inference_mode", "eval"), "leave it out: trainer.evaluate and "
                    "trainer.predict compute no gradients; graphc.stop_gradient(x) stops one"),
    **dict.fromkeys(("tensor", "array", "asarray", "Tensor", "Variable", "zeros", "ones", "randn",
                     "from_numpy", "constant"), "arrays are NumPy's: np.array, np.zeros"),
    **dict.fromkeys(("jit", "function", "pmap", "vmap", "Model", "Sequential", "Module", "fit",
                     "train", "train_step", "Strategy_"), _TRAIN),
    **dict.fromkeys(("save", "load", "save_weights", "load_weights"),
                    "write trainer.save(path) and trainer.load(path)"),
    **dict.fromkeys(("export", "export_onnx", "onnx", "to_onnx"), _EXPORT),
    **dict.fromkeys(("manual_seed", "set_random_seed", "PRNGKey", "random"),
                    "write graphc.compile(..., seed=0)"),
    **dict.fromkeys(("device", "cuda", "devices"), "write strategy=\"mirrored(4)\""),
    **dict.fromkeys(("DataLoader", "Dataset"), "batches are any list of trees of arrays; "
                    "graphc.data reads them from disk"),
    "optimizers": "write graphc.optim",
    "losses": "write graphc.nn.cross_entropy and others",
    "functional": "write graphc.nn",
}  # fmt: skip
_TRAINER: dict[str, str] = {
    **dict.fromkeys(("train", "train_step", "train_on_batch", "__call__"),
                    "write trainer.fit(batches, epochs=10), or trainer.step(batch)"),
    **dict.fromkeys(("parameters", "weights", "get_weights", "trainable_variables"),
                    "write trainer.params, a tree of arrays"),
    **dict.fromkeys(("state_dict", "save_weights", "save_model"),
                    "write trainer.save(path), or trainer.variables()"),
    **dict.fromkeys(("load_state_dict", "load_weights", "restore"), "write trainer.load(path)"),
    **dict.fromkeys(("cuda", "cpu", "to", "device"),
                    "leave it out: where a step runs is the strategy's matter"),
    **dict.fromkeys(("backward", "zero_grad", "apply_gradients"),
                    "leave it out: trainer.step computes the gradients and updates the params"),
    **dict.fromkeys(("eval", "eval_step", "test", "test_step"), "write trainer.evaluate(batches)"),
    **dict.fromkeys(("forward", "predict_on_batch", "apply"), "write trainer.predict(batches)"),
    **dict.fromkeys(("get_config", "get_layer"), "write trainer.graph()"),
    **dict.fromkeys(("lr", "learning_rate", "optimizer"), "write optimizer=graphc.optim.adam("
                    "lr=graphc.hyper(\"lr\", 1e-3)), then trainer.hyper[\"lr\"] = 3e-4"),
    **dict.fromkeys(("export", "export_onnx", "onnx", "save_onnx"), _EXPORT),
    "global_step": "write trainer.steps",
    "compile": "it is compiled: write trainer.fit(batches)",
}  # fmt: skip


# Arguments of compile, fit, evaluate and predict elsewhere.
COMPILE_WORDS: dict[str, str] = {
    **dict.fromkeys(
        ("loss", "loss_weights"),
        "the function returns the loss: np.mean(graphc.nn.cross_entropy(logits, labels))",
    ),
    **dict.fromkeys(
        ("metrics", "weighted_metrics"),
        'metrics are reported in the function: graphc.report("accuracy", x)',
    ),
    **dict.fromkeys(("opt", "optim", "tx"), "it is called optimizer="),
    **dict.fromkeys(("lr", "learning_rate"), "write optimizer=graphc.optim.adam(1e-3)"),
    **dict.fromkeys(("device", "devices", "mesh", "in_shardings"), 'write strategy="mirrored(4)"'),
    **dict.fromkeys(
        ("epochs", "batch_size"),
        "write trainer = graphc.compile(...), then trainer.fit(batches, epochs=10)",
    ),
    **dict.fromkeys(
        ("jit_compile", "run_eagerly", "mode", "fullgraph", "dynamic"),
        "leave it out: a step is compiled always",
    ),
    "batch": "it is called example_batch=",
    TOO_MANY: "write optimizer=graphc.optim.adam(1e-3): other arguments have names",
}
NO_OPTIMIZER = "there is nothing to train: no optimizer is given"
GIVE_OPTIMIZER = (
    "give graphc.compile an optimizer, such as graphc.optim.adam(1e-3), or call graphc.minimize in "
    "the function; `predict` and `evaluate` work without"
)
TRAINER_WORDS: dict[str, str] = {
    **dict.fromkeys(
        ("batch_size", "steps"), "the batches have their size: make them as large as you want"
    ),
    **dict.fromkeys(("verbose", "return_dict", "callbacks"), "leave it out"),
    **dict.fromkeys(("x", "y", "inputs", "data"), "write [{'x': x, 'y': y}], a list of batches"),
    **dict.fromkeys(("filepath", "directory"), "it is called path="),
    **dict.fromkeys(("strict", "skip_mismatch", "by_name"), "write partial=True"),
    TOO_MANY: "inputs and targets are in one batch: {'x': x, 'y': y}",
}


def of_graphc(name: str, known: Sequence[str]) -> str:
    """The help for a name that graphc does not have."""
    if name in _GRAPHC:
        return _GRAPHC[name]
    return of_function(name) or did_you_mean(name, tuple(known)) or "dir(graphc) lists its names"


def not_of_trainer(name: str, names: Sequence[str]) -> Exception:
    """The error of a name that a trainer, which has these names, does not have."""
    if name.startswith("_"):
        return AttributeError(name)
    known = [n for n in names if not n.startswith("_")]
    help = _TRAINER.get(name) or did_you_mean(name, tuple(known)) or f"it has {', '.join(known)}"
    return UnknownNameError("G0836", f"a trainer has no '.{name}'", span=user_span(), help=help)


def not_to_set(name: str, known: bool) -> GraphcError:
    """The error of a number that is set on a trainer. known: whether the step has it"""
    help = 'declare adam(lr=graphc.hyper("lr", 1e-3)); then trainer.hyper["lr"] = ...'
    if known:
        help = f'write trainer.hyper["{name}"] = ...'
    return GraphcError("G0571", f"a trainer has no '{name}' to set", span=user_span(), help=help)


def of_optim(name: str, known: Sequence[str]) -> str:
    """The help for a name that graphc.optim does not have."""
    if name.lower() in known:
        return f"write graphc.optim.{name.lower()}(1e-3)"
    help = did_you_mean(name.lower(), tuple(known))
    return help or "dir(graphc.optim) lists optimizers, schedules and transforms"
