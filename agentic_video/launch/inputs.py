"""The model and the data that a user names, checked before anything is built or started."""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agentic_video.config.overrides import parse_overrides, quoted
from agentic_video.config.settings import Settings, settings_of, template_kwargs_of
from agentic_video.datasets.rows import empty, load_rows, reported
from agentic_video.evaluation.results import SAME_ID, distinct
from agentic_video.families.registry import UnknownFamilyError, family_of, load_processor
from agentic_video.graders.connection import api_key
from agentic_video.graders.endpoint import EndpointConfig
from agentic_video.launch.options import ON_TOYWORLD, LaunchOptions, Profile, Stage
from agentic_video.planning.pictures import SIZE_KEY, check_rollout_room, fitted_system, opening_pictures, size_notes
from agentic_video.planning.published_checkpoints import checkpoint_rules
from agentic_video.rollout.chat_template import KWARGS_KEY, check_kwargs, template_in
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.systems.needs import Grader, check_needs
from agentic_video.types.record import MisplacedRowError, RecordError, each_record, rows_instead
from agentic_video.types.row import RowError, VideoQA, is_url
from agentic_video.types.text import printable
from agentic_video.utils.errors import SetupError, one_line

MODEL_KEYS: Mapping[Stage, str] = {
    "grpo": "actor_rollout_ref.model.path",
    "sft": "model.path",
    "kto": "model.path",
    "rft": "model.path",
}
"""The config key of the model that each stage starts from."""
ENOUGH_ROWS = 512
"""Rows that tell a validation enough: its standard error is then at most 2.2 points."""
MAX_FOLDERS = 64
"""Folders of videos that each node of a cluster is asked for."""
LAPTOP_BYTES = 4 << 30
"""Larger weights aren't trained without a GPU unless the laptop profile is asked for by name."""
NEEDED: Mapping[str, tuple[str, ...]] = {
    "tokenizer": ("tokenizer.json", "vocab.json"),
    "image processor": ("processor_config.json", "preprocessor_config.json"),
}
"""Files of a checkpoint other than its weights; without a processor verl starts, and each rollout fails."""
OTHER_TEMPLATES = tuple(
    f"{block}.{key}"
    for block in ("actor_rollout_ref.model", "model")
    for key in ("custom_chat_template", "tokenizer_path")
)
"""Keys with which the chat template isn't the one in the checkpoint's folder."""
BATCH_KEY, MINI_BATCH_KEY = "data.train_batch_size", "actor_rollout_ref.actor.ppo_mini_batch_size"


@dataclass(frozen=True)
class Inputs:
    """Model (a folder, or a name on a hub) and files that a user names; empty where nothing is named."""

    model: str = ""
    train: tuple[str, ...] = ()
    val: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckedData:
    """Facts about a run's data.

    Attributes:
        overrides: Fit the system to the model, and in the laptop profile the batch to little data.
        rows: Number of usable training rows, or records; 0 where it isn't known.
        videos: A video of each folder that has some.
    """

    overrides: tuple[str, ...] = ()
    rows: int = 0
    videos: tuple[str, ...] = ()


def named_inputs(stage: Stage, overrides: Sequence[str], environment: Mapping[str, str]) -> Inputs:
    """Read what overrides name, else the environment variables ``MODEL_PATH``, ``TRAIN_FILES`` and ``VAL_FILES``.

    GRPO on custom data without ``VAL_FILES`` is validated on it.
    """
    values = {override.key_or_group: override.value() for override in parse_overrides(overrides)}
    train = _files(values.get("data.train_files") or environment.get("TRAIN_FILES"))
    return Inputs(
        model=str(values.get(MODEL_KEYS[stage]) or environment.get("MODEL_PATH") or ""),
        train=train,
        # GRPO's validation is a figure of the run; that of the other stages would be a second epoch on the same data
        val=_files(values.get("data.val_files") or environment.get("VAL_FILES")) or (train if stage == "grpo" else ()),
    )


def _files(value: Any) -> tuple[str, ...]:
    """Files of an override's list, or of a variable, separated by commas: a single name may hold some."""
    if not value:
        return ()
    if isinstance(value, list):
        named = [str(file) for file in value]
    elif os.path.isfile(os.path.expanduser(str(value))):  # a pathlib.Path raises for a text that is too long for a name
        named = [str(value)]
    else:
        named = [file.strip() for file in str(value).split(",")]
    # no one else does: a shell leaves ~ as it is after a comma, in quotes and in an override
    return tuple(os.path.expanduser(file) for file in named if file)


def require_inputs(inputs: Inputs, profile: Profile, stage: Stage) -> None:
    """Require a model and data where a profile makes none."""
    named = {"MODEL_PATH": inputs.model, "TRAIN_FILES": inputs.train}
    missing = [name for name, value in named.items() if not value]
    if profile in ON_TOYWORLD or not missing:
        return
    data = (
        "a parquet or jsonl file of rows (the columns are in docs/data.md)"
        if stage == "grpo"
        else "a jsonl file of trajectory records (the fields are in docs/data.md)"
    )
    raise SetupError(
        f"{' and '.join(missing)} not set, which the {profile} profile needs. MODEL_PATH is the checkpoint to "
        f"train (the recipe's README says which), TRAIN_FILES {data}. To run the small job on the synthetic world "
        "instead: --profile laptop"
    )


def require_present(inputs: Inputs, options: LaunchOptions, profile: Profile, *, elsewhere: bool = False) -> None:
    """Require the named files and the model's folder; a run ``elsewhere`` has other machines, which may have them."""
    for variable, files in _named_files(inputs, options):
        for file in files:
            if not elsewhere or os.path.exists(file):
                _require_file(variable, file)
    if inputs.model and (not elsewhere or Path(inputs.model).exists()):
        _require_place(inputs.model, profile)


def _named_files(inputs: Inputs, options: LaunchOptions) -> list[tuple[str, tuple[str, ...]]]:
    """The files to train and to validate on, each list after its key or variable."""
    keys = {override.key_or_group for override in parse_overrides(options.overrides)}
    named = (
        ("data.train_files", "TRAIN_FILES", inputs.train),
        ("data.val_files", "VAL_FILES", inputs.val if inputs.val != inputs.train else ()),
    )
    return [(key if key in keys else variable, files) for key, variable, files in named if files]


def check_inputs(
    inputs: Inputs, options: LaunchOptions, profile: Profile, config: DictConfig, *, elsewhere: bool = False
) -> CheckedData:
    """Check that the model and the files that are here can be used, and that the rows fill a batch; fit ``config``."""
    resumed = str(OmegaConf.select(config, "trainer.resume_from_path"))
    # verl takes it as it is: without a home folder for ~
    mode = OmegaConf.select(config, "trainer.resume_mode")
    if not elsewhere and mode == "resume_path" and not os.path.isdir(resumed):
        raise SetupError(f"trainer.resume_from_path: {resumed}: no such folder")
    fitted: tuple[str, ...] = ()
    if inputs.model and not (elsewhere and not Path(inputs.model).exists()):
        tokenizer = OmegaConf.select(config, MODEL_KEYS[options.stage].replace(".path", ".tokenizer_path"))
        _check_model(inputs.model, options, profile, own_tokenizer=not tokenizer)
        if options.stage == "grpo":
            from agentic_video.evaluation.model import check_taught

            check_taught(str(Path(inputs.model).expanduser()), settings_of(config).system, "MODEL_PATH")
        fitted = _fit_pictures(str(tokenizer or inputs.model), config, options.overrides)
    _check_template(inputs.model, config, profile)
    there = [
        (name, files)
        for name, files in _named_files(inputs, options)
        if not (elsewhere and not all(Path(file).exists() for file in files))
    ]
    found = []
    if there:
        settings = settings_of(config)
        asked = _missing_graders(config, settings, profile)
        for grader in (settings.judge, settings.verifier):
            if grader.base_url:
                api_key(grader.api_key_env)
        for variable, files in there:
            rows = _usable(variable, files, options.stage, settings.system.name)
            # a custom reward that replaces it may need no grader
            if options.stage == "grpo" and not (settings.reward.path and settings.reward.mode == "replace"):
                check_needs(", ".join(files), rows, settings.system, asked)
            found.append([qa.video for qa in rows])
    videos = tuple({os.path.dirname(video): video for read in found for video in read}.values())[:MAX_FOLDERS]
    counts = [len(read) for read in found]
    if not counts or not inputs.train:
        return CheckedData(fitted, videos=videos)
    if options.stage == "grpo" and profile not in ON_TOYWORLD and inputs.val == inputs.train:
        _warn_of_validation(counts[0], config)
    # verl leaves out what doesn't fill a batch: of the training rows, and of the other stages' validation too
    least = counts[0] if options.stage == "grpo" else min(counts)
    fitted += tuple(_fitted(least, inputs, options, profile, config))
    return CheckedData(fitted, min(counts[0], _most_samples(config) or counts[0]), videos)


def check_data(config: DictConfig) -> CheckedData:
    """Check the model and the rows that the composed config of a GRPO run names, as a launch does."""
    train, val = (
        _files(OmegaConf.to_container(files) if OmegaConf.is_config(files) else files)
        for files in (config.data.train_files, config.data.val_files)
    )
    inputs = Inputs(str(config.actor_rollout_ref.model.path), train, val)
    # the names by which messages call them
    options = LaunchOptions(Path(), overrides=("data.train_files=", "data.val_files="))
    require_present(inputs, options, "cluster")
    return check_inputs(inputs, options, "cluster", config)


def _check_model(model: str, options: LaunchOptions, profile: Profile, *, own_tokenizer: bool) -> None:
    """Check that a checkpoint can be loaded, as far as its name and its folder tell."""
    from agentic_video.evaluation.model import cached_config, hub_problem

    folder = Path(model).expanduser()
    if folder.is_dir():
        _check_folder(folder, f"MODEL_PATH={model}", own_tokenizer=own_tokenizer)
        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        if profile in ON_TOYWORLD and options.profile is None and weights > LAPTOP_BYTES:
            raise SetupError(
                f"MODEL_PATH={model}: {weights / 1e9:.0f} GB of weights, but this machine has no GPU and RAY_ADDRESS "
                "names no cluster. The laptop profile is for tiny models; to try all the same: --profile laptop"
            )
        return
    if problem := hub_problem(model):
        raise SetupError(f"MODEL_PATH={model}: no such folder, and {problem}", key="MODEL_PATH")
    if config := cached_config(model):
        _check_family(config, f"MODEL_PATH={model}")


def _require_place(model: str, profile: Profile) -> None:
    """Check that a model is a folder here, or has a name that a hub may know."""
    from agentic_video.evaluation.model import check_place

    folder = Path(model).expanduser()
    check_place(folder, f"MODEL_PATH={model}")
    is_path = folder.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1
    if not folder.is_dir() and (is_path or profile in ON_TOYWORLD):
        hub = "; without a GPU nothing is downloaded" if profile in ON_TOYWORLD else ""
        raise SetupError(f"MODEL_PATH={model}: no such folder{hub}")


def _fit_pictures(model: str, config: DictConfig, overrides: Sequence[str]) -> tuple[str, ...]:
    """Check a system's pictures against a model's processor and vLLM, and print the sizes that they get.

    Returns:
        Overrides that fit the system to a processor of other cells than the recipe's model has; ``config`` has them.
    """
    rules = checkpoint_rules(model)
    if rules is None:
        return ()
    settings = settings_of(config)
    system = fitted_system(settings.system, rules, overrides)
    fitted: tuple[str, ...] = ()
    if system is not settings.system:
        fitted = (f"++{SIZE_KEY}={rules.side}",)
        OmegaConf.update(config, SIZE_KEY, rules.side, force_add=True)
        print(f"{SIZE_KEY}={rules.side}, as the processor of {model} has it", flush=True)
    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout")
    views = opening_pictures(system, rules, int(rollout.n) if rollout else 1)
    for line in size_notes(views, rules, model):
        print(line, flush=True)
    check_rollout_room(views, rules, rollout)
    return fitted


def _check_template(model: str | None, config: DictConfig, profile: Profile) -> None:
    """Check that the chat template, where it is at hand, takes the variables and the role that it is given."""
    kwargs = template_kwargs_of(config)
    if any(OmegaConf.select(config, key) for key in OTHER_TEMPLATES):
        return
    if not model and kwargs and profile in ON_TOYWORLD:
        raise SetupError(f"{KWARGS_KEY}: the tiny model's chat template reads no variables; leave it out")
    folder = Path(model or "").expanduser()
    if not model or not (template := template_in(folder)):
        return
    check_kwargs(template, kwargs)
    role = settings_of(config).system.observation_role
    if not kwargs and role == "user":
        return
    try:
        processor = load_processor(folder)
    except Exception:  # loading it for the run reports more
        return
    try:
        ChatFormat.of(processor, template_kwargs=kwargs).check_role(role)
    except ValueError as error:
        raise SetupError(f"MODEL_PATH={model}: {one_line(error)}") from error


def _check_folder(folder: Path, named: str, *, own_tokenizer: bool) -> None:
    """Check that a folder is a complete checkpoint of a model that can be trained."""
    from agentic_video.evaluation.model import require_checkpoint

    if not (folder / "config.json").is_file():
        raise SetupError(f"{named}: no checkpoint in Hugging Face's format (config.json is missing)")
    _check_family(folder / "config.json", named)
    require_checkpoint(str(folder), "vllm", "MODEL_PATH")
    for index in folder.glob("*.index.json"):
        shards = _json_of(index, named).get("weight_map")
        if gone := sorted({str(file) for file in dict(shards or {}).values() if not (folder / str(file)).is_file()}):
            raise SetupError(f"{named}: {gone[0]} is missing, which {index.name} lists: copy or download it again")
    if not own_tokenizer:
        return
    for what, files in NEEDED.items():
        if not any((folder / file).is_file() for file in files):
            raise SetupError(
                f"{named}: no {what} ({' or '.join(files)}): copy it from the model that this one was made of"
            )


def _check_family(config: Path, named: str) -> None:
    """Check that a model is of a family that can be trained."""
    try:
        family_of(str(_json_of(config, named).get("model_type")))
    except UnknownFamilyError as error:
        raise SetupError(f"{named}: {error}") from error


def _json_of(file: Path, named: str) -> dict[str, Any]:
    """Read a checkpoint's JSON file."""
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SetupError(f"{named}: {file.name} can't be read: {one_line(error)}") from error
    if not isinstance(read, dict):
        raise SetupError(f"{named}: {file.name} holds no JSON object")
    return read


def _usable(variable: str, files: Sequence[str], stage: Stage, system: str) -> list[VideoQA]:
    """Read the usable rows, or those of the records, of some files; the others are printed."""
    try:
        problems: Sequence[object]
        if stage == "grpo":
            (found, problems), kind = load_rows(files), "row"
            _warn_of_ids(variable, found)
        else:
            (found, problems), kind = _usable_records(files, stage, system), "record"
    except (RowError, RecordError) as error:
        raise SetupError(f"{variable}: {error}") from error
    for line in reported(problems, kind, len(found) + len(problems)):
        print(line, flush=True)
    if not found:
        first = f"; the first: {problems[0]}" if problems else empty(files)
        raise SetupError(f"{variable}: {', '.join(files)}: no usable {kind}{first}")
    return found


def _require_file(variable: str, file: str) -> None:
    """Require a file between a variable's commas."""
    if os.path.isfile(file):
        return
    parts = re.split(r"[\s:;]+", file)
    if is_url(file):
        what = (
            "videos may lie behind a URL, rows are read from files here: "
            f"agentic-video convert conversations --source {file} --out rows.parquet, or download the file"
        )
    elif os.path.isdir(file):
        what = "a folder: name the files in it, separated by commas"
    elif len(parts) > 1 and any(os.path.isfile(os.path.expanduser(part)) for part in parts):
        what = "no such file: separate files by commas"
    elif set("*?") & set(file):
        what = "no such file, and a pattern isn't expanded: name the files, separated by commas"
    else:
        what = "no such file"
    raise SetupError(f"{variable}: {file}: {what}")


def _warn_of_ids(variable: str, rows: Sequence[VideoQA]) -> None:
    """Warn of rows that share an id: whatever goes by question takes them for one."""
    same = [row.message for row in distinct(rows)[1] if row.reason == SAME_ID]
    if same:
        more = f" ({len(same)} such rows)" if len(same) > 1 else ""
        print(f"warning: {variable}: {printable(same[0])}{more}", flush=True)


def _warn_of_validation(rows: int, config: DictConfig) -> None:
    """Warn of the cost of a validation on all training rows, which is verl's default."""
    most = int(config.data.get("val_max_samples") or -1)
    played = min(rows, most) if most > 0 else rows
    if played > ENOUGH_ROWS and (config.trainer.test_freq > 0 or config.trainer.val_before_train):
        print(
            f"warning: VAL_FILES not set: each validation plays {played} rows of TRAIN_FILES "
            f"(trainer.test_freq={config.trainer.test_freq}); set VAL_FILES, or data.val_max_samples={ENOUGH_ROWS}",
            flush=True,
        )


def _usable_records(files: Sequence[str], stage: Stage, system: str) -> tuple[list[VideoQA], list[str]]:
    """Questions of the usable records of some files and the faults of the others; only questions stay in memory."""
    asked: list[VideoQA] = []
    problems: list[str] = []
    systems: Counter[str] = Counter()
    there: dict[str, bool] = {}
    for file in files:
        lines = rows = int(file.endswith(".parquet"))  # which only rows may be in
        for record in () if rows else each_record([file]):
            lines += 1
            if isinstance(record, RecordError):
                rows += isinstance(record, MisplacedRowError)
                problems.append(printable(str(record)))
                continue
            video = record.qa.video
            systems[record.trajectory.system] += 1
            if video not in there:
                there[video] = os.path.isfile(video)
            if there[video]:
                asked.append(record.qa)
            else:
                problems.append(f"{record.qa.where}: field 'video': {video}: no such file")
        if rows and rows == lines:
            raise RecordError(rows_instead(file, f"{stage} reads records (finished episodes)"))
    if others := [name for name in systems if name != system]:
        raise SetupError(
            f"{', '.join(files)}: {systems.total() - systems[system]} of {systems.total()} records are episodes of "
            f"{others[0]}, not of {system}, which is trained (trajectory.system): name files of its own"
        )
    return asked, problems


def _missing_graders(config: DictConfig, settings: Settings, profile: Profile) -> set[Grader]:
    """Graders that a run lacks, as no server is named and verl serves none."""
    served = bool(OmegaConf.select(config, "reward.reward_model.enable"))
    named: Mapping[Grader, EndpointConfig] = {"judge": settings.judge, "verifier": settings.verifier}
    missing = {name for name, server in named.items() if not (server.model if server.base_url else served)}
    if profile in ON_TOYWORLD and OmegaConf.select(config, "agentic_video.toyworld.verifier"):
        missing.discard("verifier")  # the launcher serves one
    return missing


def _most_samples(config: DictConfig) -> int:
    """Most training samples that are used; 0 for all."""
    return max(0, int(config.data.get("train_max_samples") or 0))


def _fitted(count: int, inputs: Inputs, options: LaunchOptions, profile: Profile, config: DictConfig) -> list[str]:
    """Overrides that fit the batch to so many rows, in the laptop profile."""
    batch = max(int(config.data.get("gen_batch_size") or 0), int(config.data.train_batch_size))
    if 0 < (most := _most_samples(config)) < batch <= count:
        raise SetupError(
            f"data.train_max_samples={most} rows don't fill a batch of {BATCH_KEY}={batch}; set {BATCH_KEY}={most}",
            key=BATCH_KEY,
        )
    if count >= batch:
        return []
    asked = {override.key_or_group for override in parse_overrides(options.overrides)}
    files = ", ".join(inputs.train)
    if profile not in ON_TOYWORLD or asked & {BATCH_KEY, "data.gen_batch_size"}:
        raise SetupError(
            f"{BATCH_KEY}={batch}: only {count} usable rows in {files}; set {BATCH_KEY}={count}", key=BATCH_KEY
        )
    fitted = [f"{BATCH_KEY}={count}"]
    if options.stage == "grpo" and MINI_BATCH_KEY not in asked:
        fitted.append(f"{MINI_BATCH_KEY}={count}")
    print(f"{files}: {count} usable rows, so {' '.join(fitted)}", flush=True)
    return fitted


def absolutize_overrides(overrides: Sequence[str], stage: Stage) -> list[str]:
    """A user's overrides with absolute paths, as a job's processes may have another working directory; without those
    that :func:`input_overrides` replaces."""
    given = (MODEL_KEYS[stage], "data.train_files", "data.val_files")
    result = []
    for text, override in zip(overrides, parse_overrides(overrides), strict=True):
        key, value = override.key_or_group, override.value()
        if key in given and value and "${" not in str(value):
            continue
        ours = key == "agentic_video.reward.path" or (
            key.startswith("agentic_video.system.") and key.endswith("prompt")
        )
        if ours and isinstance(value, str) and Path(value).expanduser().is_file():
            text = f"{text.partition('=')[0]}={quoted(_absolute(value))}"
        result.append(text)
    return result


def input_overrides(inputs: Inputs, stage: Stage) -> list[str]:
    """Overrides with a user's model and files, for processes that may have other variables and folders."""
    overrides = [f"{MODEL_KEYS[stage]}={quoted(_absolute(inputs.model))}"] if inputs.model else []
    for key, files in (("data.train_files", inputs.train), ("data.val_files", inputs.val)):
        if files:
            overrides.append(f"{key}={quoted([_absolute(file) for file in files])}")
    return overrides


def _absolute(path: str) -> str:
    """An absolute path; a name on a hub as it is."""
    here = Path(path).expanduser()
    return str(here.resolve()) if here.exists() else path
