/*
 * eager/torch/bridge: the C++ side of the PyTorch binding, compiled on the user's machine against the headers of the PyTorch that
 * will load it (eager/torch/bridge.h is the other side, and the specification of everything here).
 *
 * Owns what only PyTorch's C++ ABI can do: registering kernels with the dispatcher, reading tensors, Scalars and lists without
 * copies, calling PyTorch's own kernel, throwing PyTorch's exceptions. The core decides which calls are served.
 *
 * An operator whose C++ type is in `signatures` gets an unboxed kernel, which saves each call the IValues of a boxed one. PyTorch
 * calls kernels through tables that it changes while calls run, so calls may see half a change. Therefore what has been registered
 * once stays registered, and forwards calls to PyTorch's kernel while it is disabled.
 */
#include "eager/torch/bridge.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/infer_schema.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 10)
#error "the bridge needs PyTorch 2.10 or later"
#endif

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::TypeKind;
using torch::jit::Stack;

const aoticache_bridge_host *host;

/* The keys that conversion refuses: tensors without them are fully described by their sizes, strides and data. */
constexpr DispatchKeySet refused_keys({DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor,
                                       DispatchKey::Python});

constexpr uint64_t known_dtypes = 0
#define DTYPE_BIT(upper, lower, number, bytes) | uint64_t(1) << number
    AOTICACHE_DTYPE_LIST(DTYPE_BIT)
#undef DTYPE_BIT
    ;

constexpr size_t max_values = 32;       /* the longest schema of PyTorch 2.13 has 30 arguments */
constexpr size_t max_list_bytes = 8192; /* for twice the metadata that a holder takes */

/* ---- arguments, converted for C ---- */

class Arguments {
  public:
    /* Adds a value. False: no kind of value can represent it. */
    bool push(const at::Tensor &tensor)
    {
        auto *view = take<aoticache_tensor_view>(1);
        if (!view || !fill(tensor, view))
            return false;
        aoticache_value &value = add(AOTICACHE_VALUE_TENSOR);
        value.as.tensor = view;
        mark_wrapped(tensor);
        return true;
    }

    bool push(at::TensorList tensors) { return push_tensors(tensors); }

    bool push(at::ArrayRef<at::Scalar> scalars)
    {
        auto *elements = take<aoticache_value>(scalars.size());
        for (size_t i = 0; elements && i < scalars.size(); i++) {
            elements[i].count = 0;
            if (!fill(scalars[i], &elements[i]))
                return false;
        }
        aoticache_value &value = add(AOTICACHE_VALUE_SCALAR_LIST);
        value.count = static_cast<uint32_t>(scalars.size());
        value.as.scalars = elements;
        return elements != nullptr;
    }

    bool push(const std::optional<at::Tensor> &tensor)
    {
        return tensor && tensor->defined() ? push(*tensor) : push_none();
    }

    bool push(const at::Scalar &scalar) { return fill(scalar, &add(AOTICACHE_VALUE_NONE)); }

    bool push(int64_t number) { return push_int(AOTICACHE_VALUE_INT, number); }

    bool push(bool truth)
    {
        add(AOTICACHE_VALUE_BOOL).as.bool_value = truth;
        return true;
    }

    bool push(double number)
    {
        add(AOTICACHE_VALUE_DOUBLE).as.double_value = number;
        return true;
    }

    bool push(at::ScalarType dtype) { return push_int(AOTICACHE_VALUE_DTYPE, static_cast<int64_t>(dtype)); }

    /* Copies the text, because C strings end with a NUL. */
    bool push(std::string_view text)
    {
        char *copied = take<char>(text.size() + 1);
        if (!copied)
            return false;
        copied[text.copy(copied, text.size())] = '\0';
        add(AOTICACHE_VALUE_STRING).as.string = copied;
        return true;
    }

    bool push(at::IntArrayRef ints)
    {
        if (ints.size() > UINT32_MAX)
            return false;
        aoticache_value &value = add(AOTICACHE_VALUE_INT_LIST);
        value.count = static_cast<uint32_t>(ints.size());
        value.as.ints = ints.data();
        return true;
    }

    bool push(c10::SymIntArrayRef symbolic)
    {
        std::optional<at::IntArrayRef> ints = c10::asIntArrayRefSlowOpt(symbolic);
        return ints && push(*ints);
    }

    bool push(at::OptionalIntArrayRef ints) { return ints ? push(*ints) : push_none(); }

    template <class T> bool push(const std::optional<T> &optional) { return optional ? push(*optional) : push_none(); }

    /* Adds a value. kind: of the argument's type, from value_kind(). */
    bool push(const IValue &value, int32_t kind);

    /* Calls host->attempt or host->call. Throws on FAILED. */
    aoticache_bridge_result ask(decltype(aoticache_bridge_host::call) host_call, void *op, DispatchKeySet keys)
    {
        aoticache_error error;
        error.message[0] = '\0';
        aoticache_bridge_result result = host_call(op, keys.raw_repr(), wrapped, &stack, &error);
        TORCH_CHECK(result != AOTICACHE_BRIDGE_FAILED, error.message);
        return result;
    }

    void prepare(void *op) { host->prepare(op, wrapped, &stack); }

    aoticache_bridge_turn turn(void *op, aoticache_bridge_timed_call *timed)
    {
        return host->turn(op, wrapped, &stack, timed);
    }

    aoticache_stack stack = {values, 0, max_values};

  private:
    template <class T> T *take(size_t count)
    {
        static_assert(alignof(T) <= 8);
        size_t bytes = (count * sizeof(T) + 7) & ~size_t(7);
        if (count > max_list_bytes || bytes > max_list_bytes - used)
            return nullptr;
        T *place = reinterpret_cast<T *>(memory + used);
        used += bytes;
        return place;
    }

    aoticache_value &add(int32_t kind)
    {
        aoticache_value &value = values[stack.count++];
        value.kind = kind;
        value.count = 0;
        return value;
    }

    bool push_none()
    {
        add(AOTICACHE_VALUE_NONE);
        return true;
    }

    bool push_int(int32_t kind, int64_t number)
    {
        add(kind).as.int_value = number;
        return true;
    }

    void mark_wrapped(const at::Tensor &tensor)
    {
        size_t position = stack.count - 1;
        if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
            wrapped |= uint64_t(1) << (position < 63 ? position : 63);
    }

    static bool fill(const at::Tensor &tensor, aoticache_tensor_view *view);
    static bool fill(const at::Scalar &scalar, aoticache_value *value);
    static bool fill(const IValue &number, aoticache_value *value);
    template <class Element> bool push_tensors(c10::ArrayRef<Element> list);
    bool push_list(c10::ArrayRef<IValue> list, int32_t kind);
    template <class T, class Convert> T *copy(c10::ArrayRef<IValue> list, Convert convert);

    uint64_t wrapped = 0;
    size_t used = 0;
    aoticache_value values[max_values];
    alignas(8) unsigned char memory[max_list_bytes];
};

bool Arguments::fill(const at::Tensor &tensor, aoticache_tensor_view *view)
{
    const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
    if (!tensor.defined() || impl->key_set().has_any(refused_keys) || impl->layout() != c10::kStrided ||
        impl->has_symbolic_sizes_strides() || !impl->has_storage())
        return false;
    auto dtype = static_cast<uint32_t>(c10::typeMetaToScalarType(impl->dtype()));
    if (dtype > 63 || !(known_dtypes >> dtype & 1))
        return false;
    const void *data = impl->unsafe_storage().data(); /* throws if the data must not be read */
    c10::IntArrayRef sizes = impl->sizes(), strides = impl->strides();
    int64_t numel = impl->numel();
    if (!data && numel)
        return false;
    int64_t offset = impl->storage_offset() * static_cast<int64_t>(impl->itemsize());
    c10::Device device = impl->device();
    *view = {
        .data = numel ? const_cast<char *>(static_cast<const char *>(data)) + offset : nullptr,
        .dtype = static_cast<int32_t>(dtype),
        .device = {static_cast<int32_t>(device.type()), device.index()},
        .ndim = static_cast<int64_t>(sizes.size()),
        .numel = numel,
        .sizes = sizes.data(),
        .strides = strides.data(),
        .layout = AOTICACHE_LAYOUT_STRIDED,
        .requires_grad = false,
        .dispatch_key_set = 0,
        .handle = reinterpret_cast<struct AtenTensorOpaque *>(const_cast<at::Tensor *>(&tensor)),
    };
    return true;
}

bool Arguments::fill(const at::Scalar &scalar, aoticache_value *value)
{
    if (scalar.isSymbolic())
        return false;
    switch (scalar.type()) {
    case at::kLong:
        value->kind = AOTICACHE_VALUE_INT;
        value->as.int_value = scalar.toLong();
        return true;
    case at::kDouble:
        value->kind = AOTICACHE_VALUE_DOUBLE;
        value->as.double_value = scalar.toDouble();
        return true;
    case at::kBool:
        value->kind = AOTICACHE_VALUE_BOOL;
        value->as.bool_value = scalar.toBool();
        return true;
    case at::kComplexDouble: {
        c10::complex<double> number = scalar.toComplexDouble();
        value->kind = AOTICACHE_VALUE_COMPLEX;
        value->as.complex_value[0] = number.real();
        value->as.complex_value[1] = number.imag();
        return true;
    }
    default: /* unsigned 64-bit numbers above INT64_MAX */
        return false;
    }
}

bool Arguments::fill(const IValue &number, aoticache_value *value)
{
    value->count = 0;
    return (number.isInt() || number.isDouble() || number.isBool() || number.isComplexDouble()) &&
           fill(number.toScalar(), value);
}

bool is_absent(const IValue &value)
{
    return value.isNone() || !value.toTensor().defined();
}

bool is_absent(const at::Tensor &tensor)
{
    return !tensor.defined();
}

const at::Tensor &tensor_of(const IValue &value)
{
    return value.toTensor();
}

const at::Tensor &tensor_of(const at::Tensor &tensor)
{
    return tensor;
}

template <class Element> bool Arguments::push_tensors(c10::ArrayRef<Element> list)
{
    auto **pointers = take<const aoticache_tensor_view *>(list.size());
    if (!pointers)
        return false;
    aoticache_value &value = add(AOTICACHE_VALUE_TENSOR_LIST);
    value.count = static_cast<uint32_t>(list.size());
    value.as.tensors = pointers;
    for (size_t i = 0; i < list.size(); i++) {
        pointers[i] = nullptr;
        if (is_absent(list[i]))
            continue;
        auto *view = take<aoticache_tensor_view>(1);
        if (!view || !fill(tensor_of(list[i]), view))
            return false;
        pointers[i] = view;
        mark_wrapped(tensor_of(list[i]));
    }
    return true;
}

/* convert: returns false if an element is symbolic. */
template <class T, class Convert> T *Arguments::copy(c10::ArrayRef<IValue> list, Convert convert)
{
    T *elements = take<T>(list.size());
    for (size_t i = 0; elements && i < list.size(); i++)
        if (!convert(list[i], &elements[i]))
            return nullptr;
    return elements;
}

bool Arguments::push_list(c10::ArrayRef<IValue> list, int32_t kind)
{
    aoticache_value value = {};
    value.kind = kind;
    value.count = static_cast<uint32_t>(list.size());
    switch (kind) {
    case AOTICACHE_VALUE_INT_LIST:
        value.as.ints = copy<int64_t>(
            list, [](const IValue &from, int64_t *to) { return from.isInt() && (*to = from.toInt(), true); });
        break;
    case AOTICACHE_VALUE_DOUBLE_LIST:
        value.as.doubles = copy<double>(
            list, [](const IValue &from, double *to) { return from.isDouble() && (*to = from.toDouble(), true); });
        break;
    case AOTICACHE_VALUE_BOOL_LIST:
        value.as.bools =
            copy<bool>(list, [](const IValue &from, bool *to) { return from.isBool() && (*to = from.toBool(), true); });
        break;
    case AOTICACHE_VALUE_SCALAR_LIST:
        value.as.scalars =
            copy<aoticache_value>(list, [](const IValue &from, aoticache_value *to) { return fill(from, to); });
        break;
    default:
        value.as.strings = copy<const char *>(list, [](const IValue &from, const char **to) {
            return from.isString() && (*to = from.toStringRef().c_str(), true);
        });
    }
    add(kind) = value;
    return value.as.ints != nullptr;
}

bool Arguments::push(const IValue &value, int32_t kind)
{
    if (value.isNone())
        return push_none();
    switch (kind) {
    case AOTICACHE_VALUE_NONE: /* an absent optional tensor may also be an undefined one */
        return value.toTensor().defined() ? push(value.toTensor()) : push_none();
    case AOTICACHE_VALUE_TENSOR:
        return push(value.toTensor());
    case AOTICACHE_VALUE_TENSOR_LIST:
        return push_tensors(value.toListRef());
    case AOTICACHE_VALUE_INT:
        return value.isInt() && push(value.toInt());
    case AOTICACHE_VALUE_DOUBLE:
        return value.isDouble() && push(value.toDouble());
    case AOTICACHE_VALUE_BOOL:
        return value.isBool() && push(value.toBool());
    case AOTICACHE_VALUE_COMPLEX:
        return fill(value, &add(AOTICACHE_VALUE_NONE));
    case AOTICACHE_VALUE_STRING:
        add(kind).as.string = value.toStringRef().c_str();
        return true;
    case AOTICACHE_VALUE_DEVICE:
        add(kind).as.device = {static_cast<int32_t>(value.toDevice().type()), value.toDevice().index()};
        return true;
    case AOTICACHE_VALUE_DTYPE:
    case AOTICACHE_VALUE_LAYOUT:
    case AOTICACHE_VALUE_MEMORY_FORMAT:
        return push_int(kind, value.toInt());
    case AOTICACHE_VALUE_GENERATOR:
        add(kind).as.object = value.toGenerator().unsafeGetGeneratorImpl();
        return true;
    default:
        return push_list(value.toListRef(), kind);
    }
}

/* ---- the kinds of a schema's arguments ---- */

int32_t list_kind(const c10::Type &element)
{
    switch (element.kind()) {
    case TypeKind::OptionalType:
        return element.containedType(0)->kind() == TypeKind::TensorType ? AOTICACHE_VALUE_TENSOR_LIST : -1;
    case TypeKind::TensorType:
        return AOTICACHE_VALUE_TENSOR_LIST;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
        return AOTICACHE_VALUE_INT_LIST;
    case TypeKind::FloatType:
        return AOTICACHE_VALUE_DOUBLE_LIST;
    case TypeKind::BoolType:
        return AOTICACHE_VALUE_BOOL_LIST;
    case TypeKind::NumberType:
        return AOTICACHE_VALUE_SCALAR_LIST;
    case TypeKind::StringType:
        return AOTICACHE_VALUE_STRING_LIST;
    default:
        return -1;
    }
}

/* Returns the kind of a type; -1: none. NONE means an optional tensor, COMPLEX a number of any kind. */
int32_t value_kind(const c10::Type &type)
{
    switch (type.kind()) {
    case TypeKind::OptionalType: {
        int32_t kind = value_kind(*type.containedType(0));
        return kind == AOTICACHE_VALUE_TENSOR ? AOTICACHE_VALUE_NONE : kind;
    }
    case TypeKind::ListType:
        return list_kind(*type.containedType(0));
    case TypeKind::TensorType:
        return AOTICACHE_VALUE_TENSOR;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
        return AOTICACHE_VALUE_INT;
    case TypeKind::FloatType:
        return AOTICACHE_VALUE_DOUBLE;
    case TypeKind::BoolType:
        return AOTICACHE_VALUE_BOOL;
    case TypeKind::NumberType:
    case TypeKind::ComplexType:
        return AOTICACHE_VALUE_COMPLEX;
    case TypeKind::StringType:
        return AOTICACHE_VALUE_STRING;
    case TypeKind::DeviceObjType:
        return AOTICACHE_VALUE_DEVICE;
    case TypeKind::ScalarTypeType:
        return AOTICACHE_VALUE_DTYPE;
    case TypeKind::LayoutType:
        return AOTICACHE_VALUE_LAYOUT;
    case TypeKind::MemoryFormatType:
        return AOTICACHE_VALUE_MEMORY_FORMAT;
    case TypeKind::GeneratorType:
        return AOTICACHE_VALUE_GENERATOR;
    default:
        return -1;
    }
}

/* Returns for each result the position of the written argument that it is; -1: a new one. */
std::vector<int> returned_arguments(const c10::FunctionSchema &schema)
{
    std::vector<int> found;
    for (const c10::Argument &result : schema.returns()) {
        int argument = -1;
        for (size_t i = 0; result.alias_info() && argument < 0 && i < schema.arguments().size(); i++) {
            const c10::AliasInfo *alias = schema.arguments()[i].alias_info();
            if (alias && alias->isWrite() && *alias == *result.alias_info())
                argument = static_cast<int>(i);
        }
        found.push_back(argument);
    }
    return found;
}

/* Returns whether a call changes an argument; the schema does not mark running statistics (eager/holder/writes.c). */
bool writes(const c10::FunctionSchema &schema)
{
    if (schema.name() == "aten::native_batch_norm" || schema.name() == "aten::batch_norm_update_stats")
        return true;
    for (const c10::Argument &argument : schema.arguments())
        if (argument.alias_info() && argument.alias_info()->isWrite())
            return true;
    return false;
}

/*
 * Returns the arguments whose version counters our kernel must increase; bit i: argument i. PyTorch does this above the kernels, if
 * an operator has a kernel for that. Operators without one (_foreach_add_) leave it to the operators that their own kernels call.
 */
uint32_t written_without_note(const c10::OperatorHandle &handle)
{
    uint32_t found = 0;
    const auto &arguments = handle.schema().arguments();
    if (handle.hasKernelForDispatchKey(DispatchKey::ADInplaceOrView))
        return 0;
    for (size_t i = 0; i < arguments.size(); i++)
        if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite())
            found |= uint32_t(1) << i;
    return found;
}

/* Increases a version counter, as the kernel for ADInplaceOrView does, if there is one for this tensor and state. */
void note_write(const at::Tensor &tensor)
{
    auto key = DispatchKey::ADInplaceOrView;
    if (tensor.defined() && tensor.key_set().has(key) && !c10::impl::tls_local_dispatch_key_set().excluded_.has(key))
        tensor.unsafeGetTensorImpl()->bump_version();
}

void note_write(at::TensorList tensors)
{
    for (const at::Tensor &tensor : tensors)
        note_write(tensor);
}

void note_write(const IValue &value)
{
    if (value.isTensor())
        note_write(value.toTensor());
    else if (value.isTensorList())
        for (const at::Tensor &tensor : value.toTensorVector())
            note_write(tensor);
}

template <class Other> void note_write(const Other &) {}

std::vector<int32_t> value_kinds(const c10::FunctionSchema &schema)
{
    std::vector<int32_t> kinds;
    for (const c10::Argument &argument : schema.arguments())
        kinds.push_back(value_kind(*argument.real_type()));
    return kinds;
}

/* ---- returning results ---- */

at::Tensor take_tensor(struct AtenTensorOpaque *handle)
{
    std::unique_ptr<at::Tensor> tensor(reinterpret_cast<at::Tensor *>(handle));
    return tensor ? std::move(*tensor) : at::Tensor();
}

/* The results that the core left on the stack; frees those that are not taken. */
class Results {
  public:
    explicit Results(aoticache_stack &stack) : stack(stack) {}

    ~Results()
    {
        while (next < stack.count)
            drop(stack.values[next++]);
    }

    void check(size_t expected) const
    {
        TORCH_CHECK(stack.count == expected, "the kernel cache returned ", stack.count, " results, not ", expected);
    }

    at::Tensor take()
    {
        TORCH_CHECK(stack.values[next].kind == AOTICACHE_VALUE_OUTPUT, "the kernel cache returned no tensor");
        return take_tensor(stack.values[next++].as.output);
    }

    IValue take_boxed()
    {
        if (stack.values[next].kind != AOTICACHE_VALUE_OUTPUT_LIST)
            return take();
        aoticache_value &value = stack.values[next];
        c10::List<at::Tensor> list;
        list.reserve(value.count);
        for (uint32_t i = 0; i < value.count; i++) {
            auto *handle = value.as.outputs[i];
            value.as.outputs[i] = nullptr;
            list.push_back(take_tensor(handle));
        }
        drop(value);
        next++;
        return list;
    }

  private:
    static void drop(const aoticache_value &value)
    {
        if (value.kind == AOTICACHE_VALUE_OUTPUT)
            take_tensor(value.as.output);
        if (value.kind != AOTICACHE_VALUE_OUTPUT_LIST)
            return;
        for (uint32_t i = 0; i < value.count; i++)
            take_tensor(value.as.outputs[i]);
        free(value.as.outputs);
    }

    aoticache_stack &stack;
    size_t next = 0;
};

at::Tensor take_all(Results &results, at::Tensor *)
{
    results.check(1);
    return results.take();
}

template <class... Types> std::tuple<Types...> take_all(Results &results, std::tuple<Types...> *)
{
    results.check(sizeof...(Types));
    return std::tuple<Types...>{Types(results.take())...};
}

/* ---- kernels ---- */

/*
 * PyTorch's public interface returns kernels only for boxed calls, which cost two conversions of all values per call, and keeps a
 * record of each. This uses a gap in C++ instead: explicit instantiations may name private members.
 */
struct EntryMember {
    friend constexpr auto member_of(EntryMember);
};

template <class Tag, auto Member> struct Expose {
    friend constexpr auto member_of(Tag) { return Member; }
};

template struct Expose<EntryMember, &c10::OperatorHandle::operatorDef_>;

/* Returns the kernel of a call with this key; requires handle.hasComputedKernelForDispatchKey(key). */
const c10::KernelFunction &find_kernel(const c10::OperatorHandle &handle, DispatchKey key)
{
    return (handle.*member_of(EntryMember()))->op.lookup(DispatchKeySet(key));
}

/* An operator and key that were enabled once: never freed, because PyTorch does not report when the last call has left. */
struct Operator {
    std::atomic<void *> op;  /* of the core; null: disabled, or another call mode is active: */
    std::atomic<void *> own; /* of the core; null: disabled */
    std::atomic<int> mode;
    std::atomic<uint64_t> left, total; /* remaining and total calls of the current call mode */
    c10::OperatorHandle handle;
    DispatchKey key;
    c10::KernelFunction fallback; /* PyTorch's own kernel */
    c10::KernelFunction kernel;   /* ours; holds the functor */
    std::vector<int32_t> kinds;   /* kinds of the arguments */
    std::vector<int> returned;    /* for each result the argument that it is; -1: a new tensor */
    bool writes;                  /* writes to arguments */
    uint32_t noted;               /* bit i: a kernel increases the version of argument i itself */
    std::string range;            /* "aoticache::aten::abs": shown by profilers inside of "aten::abs" */
};

/*
 * ---- call modes other than SERVE ----
 *
 * Everything here is for calls that find no `op`, so that other calls are not slowed down. Two threads may count one call once, or
 * both end the mode: the numbers are approximate, and nothing else depends on them.
 */

/* Ends the mode: further calls use host->call() again. Harmless if the operator has been disabled meanwhile. */
void resume(Operator &state)
{
    void *none = nullptr;
    void *own = state.own.load(std::memory_order_acquire);
    state.left.store(0, std::memory_order_relaxed);
    if (own)
        state.op.compare_exchange_strong(none, own, std::memory_order_acq_rel);
}

uint64_t bypassed_now(const Operator &state)
{
    uint64_t left = state.left.load(std::memory_order_relaxed);
    bool passes = left && state.mode.load(std::memory_order_relaxed) == AOTICACHE_BRIDGE_PASS;
    return passes ? state.total.load(std::memory_order_relaxed) - left : 0;
}

/* Returns the mode of this call, and counts it. PASS also if the operator is disabled. */
C10_NOINLINE aoticache_call_mode take_call_mode(Operator &state, void *own)
{
    if (!own)
        return AOTICACHE_BRIDGE_PASS;
    auto how = static_cast<aoticache_call_mode>(state.mode.load(std::memory_order_relaxed));
    uint64_t left = state.left.load(std::memory_order_relaxed);
    if (left > 1) {
        state.left.store(left - 1, std::memory_order_relaxed);
        return how;
    }
    resume(state);
    if (how == AOTICACHE_BRIDGE_PASS)
        host->passed(own, state.total.load(std::memory_order_relaxed));
    return how;
}

/* A call's turn, timed from begin() on; a call that is not served, or throws, does not count. */
class Turn {
  public:
    Turn(void *op) : op(op) {}

    /* push: as in serve(). */
    template <class Push> aoticache_bridge_turn take(Push push)
    {
        Arguments arguments;
        bool pushed = false;
        try {
            pushed = push(arguments);
        } catch (const std::exception &) {
        }
        turn = pushed ? arguments.turn(op, &timed) : AOTICACHE_BRIDGE_NO_TURN;
        begin_ns = host->clock_ns();
        return turn;
    }

    void done() { ns = host->clock_ns() - begin_ns; }

    ~Turn()
    {
        if (turn != AOTICACHE_BRIDGE_NO_TURN)
            host->end(op, &timed, ns);
    }

  private:
    void *op;
    aoticache_bridge_turn turn = AOTICACHE_BRIDGE_NO_TURN;
    aoticache_bridge_timed_call timed;
    uint64_t begin_ns = 0, ns = 0;
};

/* Returns whether a PyTorch profiler is active on this thread; takes about 24 instructions. */
bool is_profiled()
{
    return C10_UNLIKELY(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) != nullptr);
}

template <class Ask> C10_NOINLINE aoticache_bridge_result ask_in_range(const Operator &state, Ask ask)
{
    at::RecordFunction range(at::RecordScope::FUNCTION);
    if (range.isActive())
        range.before(state.range.c_str());
    return ask();
}

/*
 * Pushes the arguments with `push` and asks the core: SERVED, FALLBACK, FALLBACK_FIRST. If push() throws, PyTorch refuses access to
 * an argument: then PyTorch's kernel is called and reports that itself.
 */
template <class Push>
aoticache_bridge_result serve(const Operator &state, void *op, DispatchKeySet keys, Arguments &arguments, Push push)
{
    bool pushed = false;
    try {
        pushed = push();
    } catch (const std::exception &) {
    }
    if (C10_UNLIKELY(!pushed)) {
        host->refuse(op);
        return AOTICACHE_BRIDGE_FALLBACK;
    }
    if (is_profiled())
        return ask_in_range(state, [&] { return arguments.ask(host->attempt, op, keys); });
    return arguments.ask(host->attempt, op, keys);
}

/* Calls PyTorch's kernel after FALLBACK_FIRST: if that throws, the call ends, and nothing is compiled. */
template <class Call> auto call_first(void *op, Call call)
{
    try {
        return call();
    } catch (...) {
        host->refuse(op);
        throw;
    }
}

/* Calls host->prepare(), after call_first() of an operator that writes to its arguments. */
template <class Push> void prepare(void *op, Push push)
{
    Arguments arguments;
    bool pushed = false;
    try {
        pushed = push(arguments);
    } catch (const std::exception &) {
    }
    if (pushed)
        arguments.prepare(op);
    else
        host->refuse(op);
}

class BoxedKernel final : public c10::OperatorKernel {
  public:
    explicit BoxedKernel(Operator *state) : state(*state) {}

    void operator()(const c10::OperatorHandle &handle, DispatchKeySet keys, Stack *stack)
    {
        void *op = state.op.load(std::memory_order_acquire);
        if (C10_UNLIKELY(!op))
            call_in_mode(handle, keys, stack);
        else if (!answer(op, handle, keys, stack))
            state.fallback.callBoxed(handle, keys, stack);
    }

  private:
    C10_NOINLINE void call_in_mode(const c10::OperatorHandle &handle, DispatchKeySet keys, Stack *stack)
    {
        void *own = state.own.load(std::memory_order_acquire);
        if (take_call_mode(state, own) != AOTICACHE_BRIDGE_TIME)
            return state.fallback.callBoxed(handle, keys, stack);
        Turn turn(own);
        auto way = turn.take([&](Arguments &arguments) { return push(arguments, stack); });
        if (way != AOTICACHE_BRIDGE_FALLBACKS_TURN) {
            Arguments arguments;
            if (serve(state, own, keys, arguments, [&] { return push(arguments, stack); }) == AOTICACHE_BRIDGE_SERVED) {
                give(arguments, stack);
                return turn.done();
            }
        }
        state.fallback.callBoxed(handle, keys, stack);
        if (way == AOTICACHE_BRIDGE_FALLBACKS_TURN)
            turn.done();
    }

    bool push(Arguments &arguments, const Stack *stack) const
    {
        size_t count = state.kinds.size();
        const IValue *values = stack->data() + (stack->size() - count);
        for (size_t i = 0; i < count; i++)
            if (!arguments.push(values[i], state.kinds[i]))
                return false;
        return true;
    }

    bool answer(void *op, const c10::OperatorHandle &handle, DispatchKeySet keys, Stack *stack)
    {
        Arguments arguments;
        size_t count = state.kinds.size();
        Stack own;
        aoticache_bridge_result result = serve(state, op, keys, arguments, [&] { return push(arguments, stack); });
        if (C10_UNLIKELY(result == AOTICACHE_BRIDGE_FALLBACK_FIRST && state.writes)) {
            write_first(op, handle, keys, stack);
            return true;
        }
        if (C10_UNLIKELY(result == AOTICACHE_BRIDGE_FALLBACK_FIRST)) {
            own.assign(stack->end() - static_cast<ptrdiff_t>(count), stack->end());
            call_first(op, [&] { state.fallback.callBoxed(handle, keys, &own); });
            result = arguments.ask(host->call, op, keys);
            if (result != AOTICACHE_BRIDGE_SERVED) {
                torch::jit::drop(*stack, count);
                stack->insert(stack->end(), own.begin(), own.end());
                return true;
            }
        }
        if (result != AOTICACHE_BRIDGE_SERVED)
            return false;
        give(arguments, stack);
        return true;
    }

    /* Lets PyTorch's kernel answer first; its arguments then have the state that the next such call will have. */
    C10_NOINLINE void write_first(void *op, const c10::OperatorHandle &handle, DispatchKeySet keys, Stack *stack) const
    {
        Stack given(stack->end() - static_cast<ptrdiff_t>(state.kinds.size()), stack->end());
        call_first(op, [&] { state.fallback.callBoxed(handle, keys, stack); });
        prepare(op, [&](Arguments &arguments) { return push(arguments, &given); });
    }

    /* Replaces the arguments with the results. */
    void give(Arguments &arguments, Stack *stack) const
    {
        Results results(arguments.stack);
        results.check(static_cast<size_t>(std::count(state.returned.begin(), state.returned.end(), -1)));
        size_t begin = stack->size() - state.kinds.size(), count = state.returned.size();
        for (size_t i = 0; state.noted >> i; i++)
            if (state.noted >> i & 1)
                note_write((*stack)[begin + i]);
        for (int argument : state.returned)
            stack->push_back(argument < 0 ? results.take_boxed()
                                          : IValue((*stack)[begin + static_cast<size_t>(argument)]));
        std::move(stack->end() - static_cast<ptrdiff_t>(count), stack->end(),
                  stack->begin() + static_cast<ptrdiff_t>(begin));
        stack->resize(begin + count);
    }

    Operator &state;
};

template <class Signature> class UnboxedKernel;

template <class Return, class... Types> class UnboxedKernel<Return(Types...)> final : public c10::OperatorKernel {
  public:
    explicit UnboxedKernel(Operator *state) : state(*state) {}

    Return operator()(DispatchKeySet keys, Types... values)
    {
        void *op = state.op.load(std::memory_order_acquire);
        if (C10_UNLIKELY(!op))
            return call_in_mode(keys, std::forward<Types>(values)...);
        {
            Arguments arguments;
            aoticache_bridge_result result =
                serve(state, op, keys, arguments, [&] { return (arguments.push(values) && ...); });
            if (result == AOTICACHE_BRIDGE_SERVED)
                return take(arguments, values...);
            if (result == AOTICACHE_BRIDGE_FALLBACK_FIRST)
                return answer_first(op, keys, arguments, std::forward<Types>(values)...);
        }
        return fall_back(keys, std::forward<Types>(values)...);
    }

  private:
    Return fall_back(DispatchKeySet keys, Types... values) const
    {
        return state.fallback.template call<Return, Types...>(state.handle, keys, std::forward<Types>(values)...);
    }

    /* Takes new results, or the argument that was written to. */
    Return take(Arguments &arguments, Types... values) const
    {
        Results results(arguments.stack);
        if constexpr (std::is_void_v<Return> || std::is_reference_v<Return>) {
            results.check(0);
            size_t i = 0;
            if (C10_UNLIKELY(state.noted != 0))
                ((state.noted >> i++ & 1 ? note_write(values) : void()), ...);
            if constexpr (std::is_reference_v<Return>)
                return written_of(values...);
        } else {
            return take_all(results, static_cast<Return *>(nullptr));
        }
    }

    template <class... Rest> static at::Tensor &written_of(at::Tensor &tensor, Rest &...) { return tensor; }

    template <class First, class... Rest> static at::Tensor &written_of(const First &, Rest &...rest)
    {
        return written_of(rest...);
    }

    C10_NOINLINE Return answer_first(void *op, DispatchKeySet keys, Arguments &arguments, Types... values) const
    {
        auto push = [&](Arguments &again) { return (again.push(values) && ...); };
        if constexpr (std::is_void_v<Return> || std::is_reference_v<Return>) {
            call_first(op, [&] { (void)fall_back(keys, std::forward<Types>(values)...); });
            prepare(op, push);
            if constexpr (std::is_reference_v<Return>)
                return written_of(values...);
        } else {
            Return own = call_first(op, [&] { return fall_back(keys, std::forward<Types>(values)...); });
            if (state.writes) {
                prepare(op, push);
                return own;
            }
            return arguments.ask(host->call, op, keys) == AOTICACHE_BRIDGE_SERVED ? take(arguments, values...) : own;
        }
    }

    C10_NOINLINE Return call_in_mode(DispatchKeySet keys, Types... values)
    {
        void *own = state.own.load(std::memory_order_acquire);
        if (take_call_mode(state, own) != AOTICACHE_BRIDGE_TIME)
            return fall_back(keys, std::forward<Types>(values)...);
        return call_timed(own, keys, std::forward<Types>(values)...);
    }

    /* Answers a timed call. Not inlined, so that the function that forwards to PyTorch's kernel needs no stack for arguments. */
    C10_NOINLINE Return call_timed(void *own, DispatchKeySet keys, Types... values)
    {
        Turn turn(own);
        auto way = turn.take([&](Arguments &arguments) { return (arguments.push(values) && ...); });
        if (way != AOTICACHE_BRIDGE_FALLBACKS_TURN) {
            Arguments arguments;
            if (serve(state, own, keys, arguments, [&] { return (arguments.push(values) && ...); }) ==
                AOTICACHE_BRIDGE_SERVED)
                return ended(turn, true, [&]() -> Return { return take(arguments, values...); });
        }
        return ended(turn, way == AOTICACHE_BRIDGE_FALLBACKS_TURN,
                     [&]() -> Return { return fall_back(keys, std::forward<Types>(values)...); });
    }

    /* Returns the result of `last`, and then ends the turn's time, if it counts. */
    template <class Last> static Return ended(Turn &turn, bool counts, Last last)
    {
        if constexpr (std::is_void_v<Return>) {
            last();
            if (counts)
                turn.done();
        } else {
            Return result = last();
            if (counts)
                turn.done();
            return result;
        }
    }

    Operator &state;
};

/* ---- signatures that get unboxed kernels ---- */

using Tensor = const at::Tensor &;
using OptionalTensor = const std::optional<at::Tensor> &;
using Scalar = const at::Scalar &;
using OptionalScalar = const std::optional<at::Scalar> &;
using Dtype = std::optional<at::ScalarType>;
using Ints = at::IntArrayRef;
using Written = at::Tensor &;
using Tensors = at::TensorList;
using Scalars = at::ArrayRef<at::Scalar>;
using SymInts = c10::SymIntArrayRef;
using OptionalInts = at::OptionalIntArrayRef;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

template <class... Signatures> struct SignatureList {};

using signatures = SignatureList<at::Tensor(Tensor),                 /* abs, relu, sigmoid */
                                 at::Tensor(Tensor, Tensor),         /* mul, mm, bmm, eq.Tensor */
                                 at::Tensor(Tensor, Tensor, Tensor), /* where.self */
                                 at::Tensor(Tensor, Scalar),         /* pow.Tensor_Scalar, leaky_relu, eq.Scalar */
                                 at::Tensor(Tensor, Tensor, Scalar), /* add, sub, threshold_backward */
                                 at::Tensor(Tensor, Tensor, Tensor, Scalar),         /* addcmul, addcdiv */
                                 at::Tensor(Tensor, Tensor, Tensor, Scalar, Scalar), /* addmm, baddbmm */
                                 at::Tensor(Tensor, OptionalScalar, OptionalScalar), /* clamp */
                                 at::Tensor(Tensor, int64_t, bool),                  /* _softmax, _log_softmax */
                                 at::Tensor(Tensor, std::string_view),               /* gelu */
                                 at::Tensor(Tensor, OptionalInts, bool, Dtype),      /* sum.dim_IntList, mean.dim */
                                 at::Tensor(Tensor, Ints, bool),                     /* amax, amin */
                                 Three(Tensor, SymInts, OptionalTensor, OptionalTensor, double), /* native_layer_norm */
                                 Three(Tensor, OptionalTensor, OptionalTensor, OptionalTensor, OptionalTensor, bool,
                                       double, double),                            /* native_batch_norm */
                                 Written(Written),                                 /* relu_, sqrt_ */
                                 Written(Written, Tensor),                         /* mul_, div_ */
                                 Written(Written, Scalar),                         /* pow_, leaky_relu_ */
                                 Written(Written, Tensor, Scalar),                 /* add_, sub_, lerp_.Scalar */
                                 Written(Written, Tensor, Tensor),                 /* lerp_.Tensor */
                                 Written(Written, Tensor, Tensor, Scalar),         /* addcmul_, addcdiv_ */
                                 Written(Written, Tensor, bool),                   /* copy_ */
                                 Written(Written, OptionalScalar, OptionalScalar), /* clamp_ */
                                 Written(Tensor, Written),                         /* abs.out */
                                 Written(Tensor, Tensor, Written),                 /* mul.out */
                                 Written(Tensor, Scalar, Written),                 /* pow.Tensor_Scalar_out */
                                 Written(Tensor, Tensor, Scalar, Written),         /* add.out */
                                 void(Tensors),                                    /* _foreach_sqrt_ */
                                 void(Tensors, Scalar),                            /* _foreach_mul_.Scalar */
                                 void(Tensors, Tensors),                           /* _foreach_div_.List */
                                 void(Tensors, Tensors, Scalar), /* _foreach_add_.List, _foreach_lerp_.Scalar */
                                 void(Tensors, Tensors, Tensors, Scalar), /* _foreach_addcmul_.Scalar */
                                 void(Tensors, Tensors, Tensors, Scalars) /* _foreach_addcdiv_.ScalarList */
                                 >;

struct Kernel {
    c10::KernelFunction function;
    std::optional<c10::impl::CppSignature> signature;
};

/* Returns whether the C++ type writes to the same arguments as the schema: types of schemas do not show that. */
template <class Return, class... Types> bool writes_as(const c10::FunctionSchema &schema, Return (*)(Types...))
{
    const bool written[] = {std::is_same_v<Types, at::Tensor &>...};
    for (size_t i = 0; i < sizeof...(Types); i++) {
        const c10::Argument &argument = schema.arguments()[i];
        bool is_written = argument.alias_info() && argument.alias_info()->isWrite();
        if (argument.real_type()->kind() == TypeKind::TensorType && is_written != written[i])
            return false;
    }
    bool returns_argument = !schema.returns().empty() && schema.returns()[0].alias_info();
    return returns_argument == std::is_reference_v<Return>;
}

/* Makes an unboxed kernel. The dispatcher's own check of registrations determines whether the type fits. */
template <class Signature> bool make_unboxed(Operator *state, std::optional<Kernel> &ret_kernel)
{
    c10::FunctionSchema schema = state->handle.schema().cloneWithRealTypes(c10::fn_has_symint<Signature>::value);
    c10::FunctionSchema ours = c10::inferFunctionSchemaFlattenedReturns<Signature>().cloneWithRealTypes();
    if (c10::findSchemaDifferences(schema, ours) || !writes_as(schema, static_cast<Signature *>(nullptr)))
        return false;
    ret_kernel = {c10::KernelFunction::makeFromUnboxedFunctor<false, UnboxedKernel<Signature>>(
                      std::make_unique<UnboxedKernel<Signature>>(state)),
                  c10::impl::CppSignature::make<Signature>()};
    return true;
}

template <class... Signatures> std::optional<Kernel> make_unboxed(Operator *state, SignatureList<Signatures...>)
{
    std::optional<Kernel> kernel;
    (void)(make_unboxed<Signatures>(state, kernel) || ...);
    return kernel;
}

/* ---- registration ---- */

struct Failure {
    aoticache_status status;
    std::string message;
};

[[noreturn]] void fail(aoticache_status status, const std::string &message)
{
    throw Failure{status, message};
}

bool is_result(const c10::Type &type)
{
    return type.kind() == TypeKind::TensorType ||
           (type.kind() == TypeKind::ListType && type.containedType(0)->kind() == TypeKind::TensorType);
}

void check_schema(const c10::FunctionSchema &schema, const char *expected)
{
    std::string text = c10::toString(schema);
    if (text != expected)
        fail(AOTICACHE_INVALID, "PyTorch has " + text + ", not " + expected);
    if (schema.is_vararg() || schema.is_varret() ||
        std::max(schema.arguments().size(), schema.returns().size()) > max_values)
        fail(AOTICACHE_UNSUPPORTED, text + ": more than " + std::to_string(max_values) + " arguments");
    for (const c10::Argument &argument : schema.arguments())
        if (value_kind(*argument.real_type()) < 0)
            fail(AOTICACHE_UNSUPPORTED, text + ": argument " + argument.name() + " is of type " +
                                            argument.real_type()->str() + ", which kernel libraries do not accept");
    for (const c10::Argument &result : schema.returns())
        if (!is_result(*result.real_type()))
            fail(AOTICACHE_UNSUPPORTED, text + ": a result is of type " + result.real_type()->str() +
                                            ", which kernel libraries do not return");
}

DispatchKey parse_key(const char *name)
{
    try {
        return c10::parseDispatchKey(name);
    } catch (const std::exception &) {
        fail(AOTICACHE_INVALID, std::string("PyTorch has no dispatch key ") + name);
    }
}

Kernel make_kernel(Operator *state)
{
    std::optional<Kernel> unboxed = make_unboxed(state, signatures());
    if (unboxed)
        return std::move(*unboxed);
    return {c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(state)), std::nullopt};
}

/*
 * Suppresses PyTorch's warning about a replaced kernel: ours is meant to replace it. The once-per-process warning is not used
 * up.
 */
class Silence : public c10::WarningHandler {
  public:
    void process(const c10::Warning &) override {}
};

void register_kernel(Operator *state)
{
    Silence silence;
    c10::WarningUtils::WarnAlways always;
    c10::WarningUtils::WarningHandlerGuard guard(&silence);
    Kernel kernel = make_kernel(state);
    state->kernel = kernel.function;
    static auto *registrations = new std::vector<c10::RegistrationHandleRAII>();
    registrations->reserve(registrations->size() + 1);
    registrations->push_back(
        c10::Dispatcher::singleton().registerImpl(state->handle.operator_name(), state->key, std::move(kernel.function),
                                                  std::move(kernel.signature), nullptr, "aoticache"));
}

std::mutex lock;
std::vector<Operator *> *operators = new std::vector<Operator *>(); /* the oldest first; under the lock */

/* Finds a registered operator that PyTorch still calls: nobody else has registered a kernel over it meanwhile. */
Operator *find_registered(const c10::OperatorHandle &handle, DispatchKey key)
{
    for (auto state = operators->rbegin(); state != operators->rend(); ++state)
        if ((*state)->handle == handle && (*state)->key == key)
            return find_kernel(handle, key)._equalsBoxedAndUnboxed((*state)->kernel) ? *state : nullptr;
    return nullptr;
}

Operator *find_or_register(const c10::OperatorHandle &handle, DispatchKey key)
{
    if (Operator *registered = find_registered(handle, key))
        return registered;
    const c10::FunctionSchema &schema = handle.schema();
    operators->reserve(operators->size() + 1);
    auto state = std::unique_ptr<Operator>(new Operator{{nullptr},
                                                        {nullptr},
                                                        {0},
                                                        {0},
                                                        {0},
                                                        handle,
                                                        key,
                                                        find_kernel(handle, key),
                                                        {},
                                                        value_kinds(schema),
                                                        returned_arguments(schema),
                                                        writes(schema),
                                                        written_without_note(handle),
                                                        "aoticache::" + handle.schema().name()});
    register_kernel(state.get());
    operators->push_back(state.get());
    return state.release();
}

Operator *enable(const char *name, const char *overload, const char *schema, const char *dispatch_key, void *op)
{
    std::optional<c10::OperatorHandle> handle = c10::Dispatcher::singleton().findSchema({name, overload});
    if (!handle)
        fail(AOTICACHE_NOT_FOUND, std::string("PyTorch has no operator ") + name + (*overload ? "." : "") + overload);
    check_schema(handle->schema(), schema);
    DispatchKey key = parse_key(dispatch_key);
    if (!handle->hasComputedKernelForDispatchKey(key))
        fail(AOTICACHE_UNSUPPORTED, std::string(name) + ": PyTorch has no kernel for " + dispatch_key);
    std::lock_guard<std::mutex> guard(lock);
    Operator *state = find_or_register(*handle, key);
    void *none = nullptr;
    if (!state->own.compare_exchange_strong(none, op))
        fail(AOTICACHE_INVALID, std::string(name) + " is already enabled for " + dispatch_key);
    state->op.store(op, std::memory_order_release);
    return state;
}

/* Runs `action`; an exception becomes a status and a line. */
template <class Action> aoticache_status guarded(char *message, size_t message_size, Action action)
{
    auto report = [&](aoticache_status status, const char *text) {
        text += strspn(text, "\n"); /* PyTorch's text on mismatched signatures begins with one */
        if (message_size)
            snprintf(message, message_size, "%.*s", static_cast<int>(strcspn(text, "\n")), text);
        return status;
    };
    try {
        action();
        return AOTICACHE_OK;
    } catch (const Failure &failure) {
        return report(failure.status, failure.message.c_str());
    } catch (const std::bad_alloc &) {
        return report(AOTICACHE_NO_MEMORY, "out of memory");
    } catch (const c10::Error &error) {
        return report(AOTICACHE_LOAD_FAILED, error.what_without_backtrace());
    } catch (const std::exception &error) {
        return report(AOTICACHE_LOAD_FAILED, error.what());
    }
}

aoticache_status bridge_enable(const char *name, const char *overload, const char *schema, const char *dispatch_key,
                               void *op, void **ret_registration, char *message, size_t message_size)
{
    return guarded(message, message_size,
                   [&] { *ret_registration = enable(name, overload, schema, dispatch_key, op); });
}

void bridge_disable(void *registration)
{
    auto *state = static_cast<Operator *>(registration);
    uint64_t passed = bypassed_now(*state);
    if (void *own = state->own.load(std::memory_order_acquire); own && passed)
        host->passed(own, passed);
    state->left.store(0, std::memory_order_relaxed);
    state->own.store(nullptr, std::memory_order_release);
    state->op.store(nullptr, std::memory_order_release);
}

uint64_t bridge_passed_now(void *registration)
{
    return bypassed_now(*static_cast<Operator *>(registration));
}

void bridge_set_call_mode(void *registration, aoticache_call_mode how, uint64_t calls)
{
    auto *state = static_cast<Operator *>(registration);
    if (how == AOTICACHE_BRIDGE_SERVE)
        return resume(*state);
    state->mode.store(how, std::memory_order_relaxed);
    state->total.store(calls, std::memory_order_relaxed);
    state->left.store(calls, std::memory_order_relaxed);
    state->op.store(nullptr, std::memory_order_release);
}

bool is_deterministic(const void *context)
{
    return static_cast<const at::Context *>(context)->deterministicAlgorithms();
}

uint32_t bridge_num_threads()
{
    return static_cast<uint32_t>(at::get_num_threads());
}

/* Returns an error if anything is thrown: the caller then calls PyTorch's function, which reports it. */
int32_t get_data_ptr(AtenTensorHandle handle, void **ret_data)
{
    try {
        *ret_data = reinterpret_cast<at::Tensor *>(handle)->unsafeGetTensorImpl()->mutable_data();
        return 0;
    } catch (...) {
        return 1;
    }
}

int32_t empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                      AtenTensorHandle *ret_handle, void **ret_data)
{
    try {
        const auto count = static_cast<size_t>(ndim);
        auto made = std::make_unique<at::Tensor>(at::detail::empty_strided_cpu(
            at::IntArrayRef(sizes, count), at::IntArrayRef(strides, count), static_cast<at::ScalarType>(dtype)));
        *ret_data = made->unsafeGetTensorImpl()->mutable_data();
        *ret_handle = reinterpret_cast<AtenTensorHandle>(made.release());
        return 0;
    } catch (...) {
        return 1;
    }
}

std::string version_text(uint64_t version)
{
    return std::to_string(version >> 56) + "." + std::to_string(version >> 48 & 255) + "." +
           std::to_string(version >> 40 & 255);
}

void check_versions(const aoticache_bridge_host *caller)
{
    if (caller->abi != AOTICACHE_BRIDGE_ABI)
        fail(AOTICACHE_UNSUPPORTED, "the bridge has interface " + std::to_string(AOTICACHE_BRIDGE_ABI) +
                                        ", the library " + std::to_string(caller->abi));
    if (aoti_torch_abi_version() != TORCH_ABI_VERSION)
        fail(AOTICACHE_UNSUPPORTED, "the bridge was compiled for PyTorch " TORCH_VERSION ", this process has " +
                                        version_text(aoti_torch_abi_version()));
}

} // namespace

extern "C" AOTICACHE_API aoticache_status aoticache_bridge_open(const aoticache_bridge_host *caller,
                                                                aoticache_bridge *ret_bridge, char *message,
                                                                size_t message_size)
{
    return guarded(message, message_size, [&] {
        check_versions(caller);
        if (ret_bridge->size != sizeof *ret_bridge)
            fail(AOTICACHE_UNSUPPORTED, "the bridge fills " + std::to_string(sizeof *ret_bridge) +
                                            " bytes, the library has " + std::to_string(ret_bridge->size));
        host = caller;
        /* Without a wrapper function, which would cost as much as PyTorch's: a ScalarType is an int8_t. */
        static_assert(std::is_same_v<std::underlying_type_t<c10::ScalarType>, int8_t>);
        const aoticache_bridge_settings settings = {
            &at::globalContext(), is_deterministic,
            reinterpret_cast<int8_t (*)()>(&c10::get_default_dtype_as_scalartype)};
        *ret_bridge = {sizeof(aoticache_bridge),
                       AOTICACHE_BRIDGE_ABI,
                       TORCH_VERSION,
                       bridge_enable,
                       bridge_disable,
                       bridge_set_call_mode,
                       bridge_passed_now,
                       bridge_num_threads,
                       settings,
                       get_data_ptr,
                       empty_strided};
    });
}
