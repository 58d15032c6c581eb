"""Compares eager/dispatch/schema/schema.h with PyTorch's own parser of schemas.

Tests all schemas that PyTorch has registered, forms that it normalises, and some thousands of damaged ones: schemas that PyTorch
accepts are accepted and printed the same; schemas that it refuses are refused at a column of the text. docs/formats/schemas.md
lists the intended differences; DIFFERENCES below has the same as patterns. Environment: BUILD, the build directory.
"""
import ctypes
import os
import random
import re

import pytest
import torch

from c_types import Error

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
MUTANTS = 6000
pytestmark = pytest.mark.quick


class Type(ctypes.Structure):
    pass


Type._fields_ = [("kind", ctypes.c_int), ("name", ctypes.c_char_p), ("fixed_size", ctypes.c_int32),
                 ("element_count", ctypes.c_size_t), ("elements", ctypes.POINTER(ctypes.POINTER(Type)))]


class Alias(ctypes.Structure):
    _fields_ = [("is_write", ctypes.c_bool), ("before_count", ctypes.c_size_t), ("after_count", ctypes.c_size_t),
                ("before", ctypes.POINTER(ctypes.c_char_p)), ("after", ctypes.POINTER(ctypes.c_char_p))]


class Default(ctypes.Structure):
    pass


Default._fields_ = [("kind", ctypes.c_int), ("int_value", ctypes.c_int64), ("float_value", ctypes.c_double),
                    ("imaginary", ctypes.c_double), ("bool_value", ctypes.c_bool), ("string_value", ctypes.c_char_p),
                    ("count", ctypes.c_size_t), ("items", ctypes.POINTER(Default))]


class Argument(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.POINTER(Type)), ("alias", ctypes.POINTER(Alias)),
                ("list_alias", ctypes.POINTER(Alias)), ("default_value", Default), ("keyword_only", ctypes.c_bool)]


class Parsed(ctypes.Structure):
    _fields_ = [("full_name", ctypes.c_char_p), ("name", ctypes.c_char_p), ("overload", ctypes.c_char_p),
                ("argument_count", ctypes.c_size_t), ("return_count", ctypes.c_size_t),
                ("arguments", ctypes.POINTER(Argument)), ("returns", ctypes.POINTER(Argument)),
                *((name, ctypes.c_bool)
                  for name in ("has_signature", "is_vararg", "is_varret", "is_mutable", "has_aliasing"))]


# The kinds in the order of aoticache_type_kind, with the names of PyTorch's Python type for them.
KINDS = ("Tensor int int float float bool bool complex number str Device int int int Generator Storage Stream QScheme "
         "str Any NoneType LIST OPTIONAL TUPLE DICT Future RRef Await Union CLASS VARIABLE OTHER").split()
LIST, OPTIONAL, TUPLE, DICT = (KINDS.index(name) for name in ("LIST", "OPTIONAL", "TUPLE", "DICT"))


def type_text(type_pointer):
    """Returns what str(argument.type) is in Python: "Optional[List[int]]"."""
    kind, names = type_pointer.contents.kind, {LIST: "List", OPTIONAL: "Optional", TUPLE: "Tuple", DICT: "Dict"}
    held = type_pointer.contents
    if held.name is not None:
        return held.name.decode()
    inner = [type_text(held.elements[i]) for i in range(held.element_count)]
    if kind == TUPLE and not inner:
        return "Tuple[()]"
    return names.get(kind, KINDS[kind]) + (f"[{', '.join(inner)}]" if inner else "")


def default_of(value):
    """Returns what argument.default_value is in Python, together with its type, since 1 == 1.0 == True."""
    if value.kind == 7:
        return [default_of(value.items[i]) for i in range(value.count)]
    plain = (None, None, value.int_value, value.float_value, complex(value.float_value, value.imaginary),
             value.bool_value, value.string_value is not None and value.string_value.decode())[value.kind]
    return type(plain).__name__, plain


def typed(value):
    return [typed(item) for item in value] if isinstance(value, list) else (type(value).__name__, value)


def alias_of(pointer):
    if not pointer:
        return None
    alias = pointer.contents
    sets = [{names[i].decode() for i in range(count)}
            for names, count in ((alias.before, alias.before_count), (alias.after, alias.after_count))]
    return alias.is_write, sets[0], sets[1]


class Schema:
    """A parsed schema; raises ValueError with the message if it is refused."""
    c = None

    def __init__(self, text):
        self.handle, error = ctypes.POINTER(Parsed)(), Error()
        self.data = text if isinstance(text, bytes) else text.encode()
        if Schema.c.aoticache_schema_parse(self.data, ctypes.byref(self.handle), ctypes.byref(error)) != 0:
            self.handle = None
            assert error.status == 2, error.message
            raise ValueError(error.message.decode(errors="replace"))

    def __del__(self):
        if self.handle:
            Schema.c.aoticache_schema_free(self.handle)

    def __getattr__(self, name):
        return getattr(self.handle.contents, name)

    def __str__(self):
        size = Schema.c.aoticache_schema_format(self.handle, None, 0)
        text = ctypes.create_string_buffer(size + 1)
        assert Schema.c.aoticache_schema_format(self.handle, text, size + 1) == size
        return text.value.decode(errors="surrogateescape")

    def items(self, what):
        count = getattr(self, f"{what}_count")
        return getattr(self, f"{what}s")[:count] if count > 0 else []


def load_library():
    c = Schema.c = ctypes.CDLL(os.path.join(BUILD, "tests", "helpers", "libaoticache_whole.so"))
    c.aoticache_schema_free.restype, c.aoticache_schema_free.argtypes = None, [ctypes.c_void_p]
    c.aoticache_schema_format.restype = ctypes.c_size_t
    c.aoticache_schema_format.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    c.aoticache_schema_equal.restype = ctypes.c_bool
    c.aoticache_schema_equal.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


# ---- everything that is registered ----

def argument_differences(ours, theirs, where):
    facts = [("name", ours.name.decode(), theirs.name), ("type", type_text(ours.type), str(theirs.type)),
             ("keyword only", ours.keyword_only, theirs.kwarg_only),
             ("has a default", ours.default_value.kind != 0, theirs.has_default_value())]
    if theirs.has_default_value():
        wanted = theirs.default_value
        if str(theirs.type) == "Device":
            wanted = str(wanted)
        facts.append(("default", default_of(ours.default_value), typed(wanted)))
    plain = ours.type.contents
    if plain.kind == OPTIONAL:
        plain = plain.elements[0].contents
    facts.append(("length", plain.fixed_size if plain.kind == LIST and plain.fixed_size >= 0 else None, theirs.N))
    # For a list of which only the elements are annotated, PyTorch reports an annotation without names.
    ours_alias = alias_of(ours.list_alias if plain.kind == LIST else ours.alias)
    if plain.kind == LIST and ours_alias is None and ours.alias:
        ours_alias = (ours.alias.contents.is_write, set(), set())
    info = theirs.alias_info
    facts.append(("alias", ours_alias, info and (info.is_write, set(info.before_set), set(info.after_set))))
    return [f"{where}: {what}: {a!r}, PyTorch {b!r}" for what, a, b in facts if a != b]


def differences(schema, text=None):
    """Returns the differences between our reading of a schema's text and PyTorch's object, as a list."""
    text = text or str(schema)
    try:
        ours = Schema(text)
    except ValueError as error:
        return [f"refused: {error}"]
    facts = [("print", plain_sets(str(ours)), plain_sets(str(schema))), ("name", ours.name.decode(), schema.name),
             ("overload", ours.overload.decode(), schema.overload_name),
             ("arguments", ours.argument_count, len(schema.arguments)),
             ("returns", ours.return_count, len(schema.returns)), ("mutable", ours.is_mutable, schema.is_mutable),
             ("aliasing", ours.has_aliasing, any(r.alias_info is not None for r in schema.returns))]
    found = [f"{what}: {a!r}, PyTorch {b!r}" for what, a, b in facts if a != b]
    if ours.argument_count == len(schema.arguments) and ours.return_count == len(schema.returns):
        for what, theirs in (("argument", schema.arguments), ("return", schema.returns)):
            for position, pair in enumerate(zip(ours.items(what), theirs)):
                found += argument_differences(*pair, f"{what} {position}")
    return found + again_differences(ours)


def again_differences(ours):
    """The printed text parses as the same schema, if PyTorch too can parse what it prints."""
    printed = str(ours)
    theirs = parse_theirs(printed)
    if theirs is None or plain_sets(str(theirs)) != plain_sets(printed):
        return []
    try:
        again = Schema(printed)
    except ValueError as error:
        return [f"what is printed, {printed}, is refused: {error}"]
    if str(again) != printed:
        return [f"what is printed, {printed}, reads as {again}"]
    same = Schema.c.aoticache_schema_equal(ours.handle, again.handle)
    return [] if same or has_odd_default(printed) else [f"what is printed, {printed}, reads as another schema"]


def has_odd_default(text):
    """Returns whether a string is the default of another type, which PyTorch accepts and prints without its quotes."""
    return re.search(r"=[^,)]*", text) is not None and re.search(r"=['\"]", text) is None


def plain_sets(text):
    """Sorts the names of an alias set: PyTorch prints them in the order of a hash table, which changes."""
    def order(match):
        return "(" + " -> ".join("|".join(sorted(part.rstrip("!").split("|"))) + "!" * part.endswith("!")
                                 for part in match.group(1).split(" -> ")) + ")"
    return re.sub(r"\(([\w*$|]+!?(?: -> [\w*$|]*)?)\)", order, text)


def check_registered():
    # "PyObject" comes from a signature in C++ (in DTensor); PyTorch's parser does not know it.
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if "PyObject" not in str(schema)]
    wrong, exact = [], 0
    for schema in schemas:
        found = differences(schema)
        wrong += [f"{schema}: {each}" for each in found]
        if not found:
            exact += str(Schema(str(schema))) == str(schema)
    enough = len(schemas) > 3000 and exact == len(schemas)
    return wrong + ([] if enough else [f"{exact} of {len(schemas)} printed to the letter"]), f"{len(schemas)} schemas"


# ---- forms that PyTorch normalises, and those that it refuses ----

ARGUMENTS = r"""
Tensor(a!) x|Tensor(a! -> b) x|Tensor (a!) [] x|Tensor(a)[](b!)? x|Tensor(a)?[] x|Tensor(*) x|Tensor(* -> a) x|Tensor! x
int! x, Tensor! y|Tensor![]! x|Tensor(a1) x|Tensor(a) [2] (b) ? x|int[](a!)[2] x|Tensor(a)[][](b) x|Tensor(a)[][] x
int[2] stride=1|int[2] x=[1, 1]|int[] x=[1, 1]|int[] x=[2]|int[3] x=-1|int[0] x=1|int[1] x=[1, 2]|SymInt[2] x=1|SymInt[] x=[1,2]
SymInt x=1|SymInt[][] x|SymBool? x=True|Layout[] x=[1, 1]|ScalarType[2] x=1|ScalarType?[] x|MemoryFormat[]? x
float eps=1e-05|float x=1|float x=0.1|float x=1e30|float x=1e16|float x=123456789012345678|float x=-1|float x=0x1p3
float x=9e18|float x=9223372036854775807|float x=-9223372036854775808|float x=-0.|float[] x=[1e-5, -2]|float[2] x=1.5
int dtype=float|int d=long|int d=Mean|MemoryFormat m=contiguous_format|Layout l=strided|ScalarType d=float32|float x=float
ScalarType x=half|ScalarType x=complex64|ScalarType x=bits8|ScalarType x=uint3|ScalarType? x=float|ScalarType? x=half
str? x=None|str x="a"|str x='it"s'|str x='it\'s'|str x="a\\b"|str x="\n\t\a\b\f\v"|str x="\101\033"|str x=""|str x=''''''
bool[3] mask|bool[3] mask=True|bool[] x=[True,False]|bool x=True|bool x=5|int x=True|int x=None|int x=1.5|int x=1e3|int x=1E3
int x=0x10|int x=0x1e|int x=.5|int x=- 5|int x=-9223372036854775808|int? x=5|float? x=5|float? x=5.|Tensor? x=5
complex x=1j|complex x=-1.5j|complex x=1.5|complex[] x=[1j]|complex[2] x=1j|complex? x=1|Scalar x=1|Scalar x=1.0|Scalar x=1j
Device x="cpu"|Device x="cuda:1"|Device? x="cpu"|Device? x=None|Generator? x=None|Generator x=None|Quantizer x=None
Tensor?[] x|int[]? x=None|int[2]? x=1|bool[]? x=True|int?? x|int[]?[] x|int[][2] x|int[1.5] x|int[1j] x|int[0x4] x
(int, Tensor) x|() x|(int)[] x|(Tensor(a), Tensor(b)) x|((int, int), str[])[] x|(SymInt, ScalarType, SymBool) x
Dict(str, Tensor) x|Dict(int, SymInt) x|Dict(Any, t)[] x|Dict(str,Tensor(a))(b) x|Future(t) x|RRef(Future(int)) x|Await(t)? x
__torch__.torch.classes.quantized.LinearPackedParamsBase x|t x|tVal[] x|foo x|number x|list x|None x|NoneType[] x
Union(int, str) x|Union(Tensor, int?) x|Union(float, int, complex) x|Union(None, int) x|Union(bool, int)? x|Union(str,int)[] x
Union(Union(int,str),float) x|Union(bool,str,float,Device,Generator,Any[]) x|Union(str[],int[],float[]) x|Union(t, int) x
DeviceIndex x|ConstQuantizerPtr x=5|Capsule x|AnyClassType? x|AnyEnumType x|Storage x|Stream x|QScheme x|Any(a) x|complex? x=1j
int x, *, int y|*, int y|int x, *|*,*,int x|...|int x, ...|int x, *, ...|int x=1, int[] y|*, int x=1, int y|int x, int x
int isx, int NoneTyp, int async|Tensor Tensor|int x # c|Tensor _
""".strip().replace("\n", "|").split("|")

# The table above cannot contain a "|".
ARGUMENTS += ["Tensor(a|b -> c|*) x", "Tensor(a|a) x", "Tensor(*|) x", "Tensor(a|*|*) x", "Tensor(a|b -> b|a) x"]

REFUSED_ARGUMENTS = r"""
SymFloat x;Dimname x;_x x;Float x;TensorList x;Union(int) x;Union() x;Union(t, u) x;Union x;Future x;Future() x;None? x
Tensor;Tensor x y;int if;int None;int def;int x,;, int x;..., int x;int x=1, int y;int x=1, Tensor? y;int x=1, ...
Tensor() x;Tensor(!) x;Tensor(a, b) x;Tensor(a!b) x;Tensor(a -> ) x;Tensor(->b) x;Tensor(a -> b!) x;Tensor?(a) x
int x=inf;int x=int;int x=9223372036854775808;float x=1e999;float x=1e-310;float x=--1;int x=+1;int x=1 2;complex x=1
Tensor x=5;Tensor[] x=None;Tensor[] x=[];int[] x=[1.5];int[] x=[True];int[] x=[None];int[] x=[1,];int[]? x=[1];int[2] x=None
bool[] x=[1];bool[2] x=1;float[] x=[True];Scalar[] x=[1];str[] x=["a"];str[2] x="a";int[2] x=float;SymBool x=True;Any x=5
Device x="bogus";Device x="cuda:01";Device x="";Device x=None;Device x=cpu;t x=5;Dict(str, int) x=None;(int, int) x=None
str x="a;str x='\q';str x="\x41";str x="\u1234";str x="\12";str x='a' 'b';int x==1;int ** x;**;int x, *=;int[-1] x;int[2][3] x
int[2]?[] x;int[.5] x;Dict(t, int) x;Dict(int[], t) x;Dict(int) x;Dict(int, int, int) x;__torch__.foo x;int $x;@ x
__torch__.torch.classes.a x;Tensor a.b;Tensor 1a;int x # type: int
""".strip().replace("\n", ";").split(";")

WHOLE = ["a::b() -> ...", "a::b() -> (Tensor, ...)", "a::b(...) -> ...", "a::b() -> (Tensor(a) out, int)", "a::b() -> int[2] y",
         "a::b() -> (int)", "a::b() -> ((int))", "a::b() -> (())", "a::b() -> ((int, int)[])", "a::b() -> (()[])", "b(int x)->int",
         "  a : : b . c ( int x )->int # c\n  ", "\n# c\na::b() -> ()\n\n", "a::b(int\nx) -> (int,\n int)", "a::b \\\n () -> ()",
         "a::b() -> Tensor(a)[](b) x", "a::b() -> Tensor!", "a::b() -> None", "a.b() -> ()", "a::b.x__y() -> (int x, int y)"]

REFUSED_WHOLE = ["", "(", "a", "a::", "a::b", "a::b.c", "a:b() -> ()", "a:::b() -> ()", "::b() -> ()", "a::b.() -> ()",
                 "a::b.default() -> ()", "a::b.__c() -> ()", "a::b.c.d() -> ()", "a::b.1() -> ()", "a::if() -> ()", "a::b()",
                 "a::b() ->", "a::b() - > int", "a::b() => int", "a::b() -> () ;", "a::b() -> ())", "a::b() -> ()\na::c() -> ()",
                 "a::b() ->\n int", "a::\nb() -> ()", "a::b(int x) -> int = 5", "a::b() -> (int y=1)", "a::b() -> int, int",
                 "a::b() -> (..., int)", "a::b() -> (*)", "a::b() -> ()[]", "a::b(..., ...) -> ()", "a::b::c() -> ()", "a::b( -> ()"]


def parse_theirs(text):
    """Returns PyTorch's schema, or None. Some of its messages are not UTF-8, so that raising them fails in yet another way."""
    try:
        return torch._C.parse_schema(text)
    except (RuntimeError, UnicodeDecodeError, ValueError, IndexError):
        return None


def refusal_problem(text):
    try:
        return f"{text!r} is accepted as {Schema(text)}, and PyTorch refuses it"
    except ValueError as error:
        column = re.match(r"schema, column (\d+): ", str(error))
        # The end of the text is a valid position.
        if column and 1 <= int(column.group(1)) <= len(text.encode()) + 1 and "\n" not in str(error):
            return None
        return f"{text!r}: {error}"


def check_forms():
    wrong, texts = [], [f"a::b({each}\n) -> ()" for each in ARGUMENTS] + WHOLE
    for text in texts:
        schema = parse_theirs(text)
        if schema is None:
            wrong.append(f"{text!r}: PyTorch refuses it: a mistake in this test")
        else:
            wrong += [f"{text!r}: {each}" for each in differences(schema, text)]
    return wrong, f"{len(texts)} forms"


def check_refusals():
    texts = [f"a::b({each}\n) -> ()" for each in REFUSED_ARGUMENTS] + REFUSED_WHOLE
    wrong = [f"{text!r}: PyTorch accepts it: a mistake in this test" for text in texts if parse_theirs(text)]
    return wrong + [each for each in map(refusal_problem, texts) if each], f"{len(texts)} refusals"


# ---- definitions of operators: no type variables ----

def defines(text):
    """Returns whether PyTorch defines an operator from the text, whose namespace must be a."""
    library = torch._C._dispatch_library("FRAGMENT", "a", "", "file.py", 1)
    try:
        library.def_(text, "")
        return True
    except (RuntimeError, UnicodeDecodeError, ValueError, IndexError):
        return False
    finally:
        library.reset()


def is_definition(text):
    handle, error = ctypes.c_void_p(), Error()
    status = Schema.c.aoticache_schema_parse_definition(text.encode(), None, ctypes.byref(handle), ctypes.byref(error))
    Schema.c.aoticache_schema_free(handle)
    return status == 0


VARIABLES = ["tensor x, floot y", "t x", "t[] x", "t? x", "Future(t) x", "RRef(t) x", "Await(t) x", "Dict(str, t) x",
             "(int, t) x", "Union(int, t) x", "Future(Tensor) x", "Any x", "int x, tensor[2] y"]


def check_definitions():
    texts = [f"a::b({each}\n) -> ()" for each in ARGUMENTS + REFUSED_ARGUMENTS + VARIABLES]
    texts += ["a::b() -> t", "a::b() -> (Tensor, tensor)", "a::b() -> tensor[]"] + [f"a::{each}" for each in (
        "b(tensor x) -> tensor", "b.c(Tensor x, *, t y) -> ()")]
    wrong = [f"{text!r}: defined by PyTorch: {defines(text)}, here: {is_definition(text)}" for text in texts
             if defines(text) != is_definition(text) and not is_meant_to_differ(text, parse_theirs(text))]
    variables = sum(parse_theirs(text) is not None and not is_definition(text) for text in texts)
    if variables < 15:
        wrong.append(f"only {variables} texts have type variables")
    return wrong, f"{len(texts)} definitions, {variables} with type variables"


# ---- damaged schemas ----

CHARACTERS = "()[]{}:.,=*!?|-> \n\t\"'\\#;@0123456789abtxzTIe_$é"
WORDS = ("Tensor", "int", "SymInt", "float", "bool", "str", "Scalar", "Device", "ScalarType", "Layout", "t", "None", "True",
         "->", "...", "::", "(a!)", "(a)", "[]", "[2]", "?", "=", "=1", "=None", "='x'", "=1.5", "=[1, 2]", "Dict(", "Future(",
         "Any", "complex", "*", ", ", "!", "(", ")", "if", "1e5", "NoneType", "__torch__.torch.classes.", "Union(", "long", "1j")


def mutate(text, choose):
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        kind, place = choose.randrange(7), choose.randrange(len(text) + 1)
        tokens = re.findall(r"\w+|\s+|[^\w\s]", text) or ["x"]
        at = choose.randrange(len(tokens))
        if kind == 0:
            text = text[:place] + text[place + 1:]
        elif kind == 1:
            text = text[:place] + choose.choice(CHARACTERS) + text[place:]
        elif kind == 2:
            text = text[:place] + choose.choice(CHARACTERS) + text[place + 1:]
        elif kind == 3:
            text = "".join(tokens[:at] + tokens[at + 1:])
        elif kind == 4:
            text = "".join(tokens[:at] + [tokens[at]] + tokens[at:])
        elif kind == 5:
            other = choose.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
            text = "".join(tokens)
        else:
            text = "".join(tokens[:at] + [choose.choice(WORDS)] + tokens[at:])
    return text


def is_meant_to_differ(text, theirs):
    """Returns whether docs/formats/schemas.md, "Differences", lists this difference."""
    if theirs is None:
        return re.search(r"__torch__\s*\.", text) is not None       # classes that no one has registered
    return (re.search(r"\[\s*\d{5,}", text)                         # long lists: lengths beyond 32 bits, many repetitions
            or re.search(r"Device[^,]*=\s*['\"]\w+:\d{3,}", text)   # indices beyond 127
            or re.search(r"\\000", text)                            # strings with a zero byte
            or re.search(r"Scalar\s*\?\s*\?|Union", text)           # unions of related types
            or re.search(r"\b[a-z]\w*\s*\.\s*[A-Za-z_]", re.sub(r"\b__torch__[\w.]*", "", text.partition("(")[2]))  # dotted variables
            or not text.isascii())                                  # other bytes in strings are printed as octal numbers


def check_mutants():
    choose, wrong, counts = random.Random(8), [], {"accepted": 0, "refused": 0, "meant to differ": 0}
    sources = [str(schema) for schema in torch._C._jit_get_all_schemas()]
    sources += [f"a::b({each}\n) -> ()" for each in ARGUMENTS] * 4 + WHOLE * 4
    for _ in range(MUTANTS):
        text = mutate(choose.choice(sources), choose)
        theirs = parse_theirs(text)
        if theirs is None:
            found = [each for each in [refusal_problem(text)] if each]
        else:
            found = [f"{text!r}: {each}" for each in differences(theirs, text)]
        if found and is_meant_to_differ(text, theirs):
            counts["meant to differ"] += 1
            continue
        counts["refused" if theirs is None else "accepted"] += 1
        wrong += found
    if counts["accepted"] < MUTANTS // 20 or counts["refused"] < MUTANTS // 4 or counts["meant to differ"] > MUTANTS // 50:
        wrong.append(f"the mutants are not of all kinds: {counts}")
    return wrong, "mutants: " + ", ".join(f"{count} {what}" for what, count in counts.items())


@pytest.mark.parametrize("check", [check_registered, check_forms, check_refusals, check_definitions, check_mutants],
                         ids=lambda check: check.__name__.removeprefix("check_"))
def test_schemas(check):
    load_library()
    wrong, what = check()
    print(what)
    assert not wrong, wrong[:20]
