/*
 * eager/compile/inductor/wrapper: the header against which the C++ wrapper that Inductor generates for a kernel is compiled
 * here, instead of PyTorch's own headers and the container's text that each wrapper repeats.
 *
 * The generated half stays as PyTorch writes it: the constructor that describes inputs, outputs and constants, the checks of
 * inputs, run_impl(). This header defines the names that it uses, in the same namespace, and connects it to the container in
 * C (runtime/kernel.h). It leaves out what makes PyTorch's form slow to compile and large: regular expressions, streams,
 * maps, exceptions. Names and meanings are those of torch/csrc/inductor/aoti_runtime/{utils,model,model_base}.h, PyTorch
 * 2.13. A wrapper that uses anything else does not compile, and is compiled in PyTorch's way.
 *
 * Errors: `throw` keeps the message, frees what the run owns, and jumps back to where the run began. So everything that owns
 * memory or a tensor is in the list of its run (class owned), and a library needs no C++ runtime. Kernels that need one
 * themselves may throw: for them the wrapper is compiled with exceptions and AOTICACHE_WRAPPER_CATCHES.
 *
 * Included only by the file that eager/compile/inductor/build.py writes, after the declarations of the aoti_torch_* functions
 * that the wrapper names.
 */
#ifndef AOTICACHE_INDUCTOR_WRAPPER_H
#define AOTICACHE_INDUCTOR_WRAPPER_H

#include <initializer_list>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Use C's header: libstdc++'s contains all special functions of C++17, a third of a wrapper's compile time. */
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

#include "runtime/kernel.h"

#define AOTI_NOINLINE __attribute__((noinline))
#define AOTICACHE_COLD __attribute__((cold))
#define C10_ALWAYS_INLINE_ATTRIBUTE
#define AOTI_RUNTIME_SUCCESS 0
#define AOTI_RUNTIME_FAILURE 1
#define AOTI_TORCH_SUCCESS 0
#define AOTI_TORCH_FAILURE 1

/* The data of constants, which PyTorch's build puts next to its code; a library without constants has none. */
extern "C" __attribute__((visibility("hidden"), weak)) const uint8_t _binary_constants_bin_start[];
extern "C" int omp_get_level(void) __attribute__((weak));

#ifdef AOTICACHE_WRAPPER_IS_PARALLEL
/*
 * Called when kernels enter a parallel region (linked with --wrap=GOMP_parallel). With one thread, libgomp creates a team of one,
 * which takes 0.35 us; a region's code that is called outside of any region is a team of one as well.
 */
extern "C" {
int omp_get_max_threads(void);
int omp_in_parallel(void);
void __real_GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);

__attribute__((visibility("hidden"))) void __wrap_GOMP_parallel(void (*body)(void *), void *data, unsigned threads,
                                                                unsigned flags)
{
    if (threads <= 1 && omp_in_parallel() == 0 && (threads == 1 || omp_get_max_threads() == 1))
        body(data);
    else
        __real_GOMP_parallel(body, data, threads, flags);
}
}
#endif

/* ---- types in declarations of kernels, which the wrapper passes by pointer only ---- */

namespace c10 {
struct Half;
struct BFloat16;
struct Float8_e4m3fn;
struct Float8_e5m2;
struct Float8_e4m3fnuz;
struct Float8_e5m2fnuz;
struct Float8_e8m0fnu;
template <typename T> struct alignas(sizeof(T) * 2) complex {
    T real_, imag_;
    constexpr complex(T real = 0, T imag = 0) : real_(real), imag_(imag) {}
};
template <typename A, typename B> constexpr auto div_floor_integer(A a, B b) -> decltype(a / b)
{
    return ((a < 0) != (b < 0) && a % b != 0) ? a / b - 1 : a / b;
}
} // namespace c10
namespace at {
using c10::BFloat16;
using c10::Half;
} // namespace at
using half = c10::Half;
using bfloat16 = c10::BFloat16;
using float8_e4m3fn = c10::Float8_e4m3fn;
using float8_e5m2 = c10::Float8_e5m2;

/* Numbers of PyTorch (c10/core/ScalarType.h and others), which never change. */
namespace aoticache_torch {
#define NUMBER_OF_DTYPE(upper, lower, number, bytes) dtype_##lower = number,
#define NUMBER_OF_LAYOUT(upper, lower, number) layout_##lower = number,
#define NUMBER_OF_FORMAT(upper, lower, number) memory_format_##lower = number,
enum : int32_t {
    AOTICACHE_DTYPE_LIST(NUMBER_OF_DTYPE) AOTICACHE_LAYOUT_LIST(NUMBER_OF_LAYOUT)
        AOTICACHE_MEMORY_FORMAT_LIST(NUMBER_OF_FORMAT) device_type_cpu = 0
};
/* For placement new; <new> would include the standard library's declarations. */
struct at_place {
    void *address;
};
} // namespace aoticache_torch
inline void *operator new(size_t, ::aoticache_torch::at_place place) noexcept
{
    return place.address;
}

namespace torch {
namespace aot_inductor {

using DeviceStreamType = void *;
using aoticache_torch::at_place;

#ifdef AOTICACHE_WRAPPER_IS_PLAIN
/* The functions of the host. They are the same in the whole process, so those of the last run are valid. */
static const aoticache_kernel_host *run_host;

inline AOTITorchError host_get_data_ptr(AtenTensorHandle tensor, void **ret_data)
{
    const aoticache_kernel_host *host = __atomic_load_n(&run_host, __ATOMIC_RELAXED);
    return host != nullptr && host->get_data_ptr(tensor, ret_data) == AOTI_TORCH_SUCCESS
               ? AOTI_TORCH_SUCCESS
               : aoti_torch_get_data_ptr(tensor, ret_data);
}

inline AOTITorchError host_empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                         int32_t device_type, int32_t device_index, AtenTensorHandle *ret_tensor)
{
    void *data;
    const aoticache_kernel_host *host = __atomic_load_n(&run_host, __ATOMIC_RELAXED);
    return host != nullptr && device_type == ::aoticache_torch::device_type_cpu &&
                   host->empty_strided(ndim, sizes, strides, dtype, ret_tensor, &data) == AOTI_TORCH_SUCCESS
               ? AOTI_TORCH_SUCCESS
               : aoti_torch_empty_strided(ndim, sizes, strides, dtype, device_type, device_index, ret_tensor);
}

/* Reads a number at run time from a tensor, which is on the CPU, as are all tensors of a plain library. */
inline AOTITorchError host_item_float64(AtenTensorHandle tensor, double *ret_value)
{
    void *data;
    const AOTITorchError code = host_get_data_ptr(tensor, &data);
    if (code == AOTI_TORCH_SUCCESS)
        *ret_value = *static_cast<const double *>(data);
    return code;
}
#define aoti_torch_item_float64 ::torch::aot_inductor::host_item_float64
#define aoti_torch_get_data_ptr ::torch::aot_inductor::host_get_data_ptr
#define aoti_torch_empty_strided ::torch::aot_inductor::host_empty_strided
#endif

/* ---- a run: ownership, and leaving it on errors ---- */

class owned {
  public:
    owned *next, **place; /* place: the pointer that points to this one */
    owned();
    owned(const owned &) = delete;
    owned &operator=(const owned &) = delete;

  protected:
    virtual void drop() {}
    ~owned()
    {
        *place = next;
        if (next != nullptr)
            next->place = place;
    }
    friend struct run_frame;
};

/*
 * Variables that kernels keep between runs, which the first thread initializes (factors of sums of squares). The first byte of a
 * guard says that they are initialized (Itanium C++ ABI, 3.3.3).
 */
static pthread_mutex_t guards_mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static __thread int guards_held;

inline void release_guards(int count)
{
    for (; count > 0; count--, guards_held--)
        pthread_mutex_unlock(&guards_mutex);
}

struct run_frame {
    owned *first = nullptr;
    bool of_call = false; /* an aoti_torch_* function failed, and the message is its name */
    char message[1024];
    void *target[5];

    AOTICACHE_COLD void drop_all()
    {
        while (first != nullptr) {
            owned *one = first;
            first = one->next;
            if (first != nullptr)
                first->place = &first;
            one->next = nullptr;
            one->place = &one->next;
            one->drop();
        }
    }
};

static __thread run_frame *current_run;

inline owned::owned()
{
    run_frame *run = current_run;
    next = run->first;
    place = &run->first;
    if (next != nullptr)
        next->place = &next;
    run->first = this;
}

/* Leaves the run. If an error would have to leave a parallel loop, the process ends, as in PyTorch. */
[[noreturn]] AOTI_NOINLINE AOTICACHE_COLD static void leave_run(const char *message, bool of_call = false)
{
    run_frame *run = current_run;
    if (run == nullptr || (omp_get_level != nullptr && omp_get_level() > 0)) {
        fprintf(stderr, "aoticache: a kernel failed inside a parallel loop, which nothing can leave: %s\n", message);
        abort();
    }
    run->of_call = of_call;
    const size_t length = of_call ? strcspn(message, "(") : sizeof run->message; /* only the function's name */
    snprintf(run->message, sizeof run->message, "%.*s", (int)length, message);
    release_guards(guards_held);
    run->drop_all(); /* before the jump: owned objects are on the stack that it leaves */
    __builtin_longjmp(run->target, 1);
}

[[noreturn]] AOTICACHE_COLD static void fail_call(const char *call)
{
    leave_run(call, true);
}

#define AOTI_TORCH_ERROR_CODE_CHECK(call)                      \
    do {                                                       \
        if (__builtin_expect((call) != AOTI_TORCH_SUCCESS, 0)) \
            ::torch::aot_inductor::fail_call(#call);           \
    } while (0)
#define AOTI_RUNTIME_ERROR_CODE_CHECK AOTI_TORCH_ERROR_CODE_CHECK
#define AOTI_RUNTIME_CHECK(condition, message)                                                 \
    do {                                                                                       \
        if (__builtin_expect(!(condition), 0))                                                 \
            ::torch::aot_inductor::leave_run(::torch::aot_inductor::text_of(message).c_str()); \
    } while (0)
#define AOTI_TORCH_CHECK(condition, ...)                      \
    do {                                                      \
        if (__builtin_expect(!(condition), 0))                \
            ::torch::aot_inductor::leave_run("" __VA_ARGS__); \
    } while (0)

} // namespace aot_inductor
} // namespace torch

#ifdef AOTICACHE_WRAPPER_CATCHES
#include <exception>
#else
/* Called by kernels for errors (an index out of range). The library's own version ends the run without the C++ runtime. */
extern "C" __attribute__((visibility("hidden"))) void aoti_torch_check(bool condition, const char *function,
                                                                       const char *file, uint32_t line,
                                                                       const char *message)
{
    if (__builtin_expect(condition, 1))
        return;
    char text[1024];
    snprintf(text, sizeof text, "%s (%s at %s:%u)", message, function, file, (unsigned)line);
    torch::aot_inductor::leave_run(text);
}

#include "wrapper_cxx.h"
#endif

namespace torch {
namespace aot_inductor {

#include "wrapper_std.h"

inline const std::stringstream &text_of(const std::stringstream &text)
{
    return text;
}
inline const std::string text_of(const std::string &text)
{
    return text;
}

struct thrower {
    [[noreturn]] void operator=(const std::runtime_error &error) { leave_run(error.message); }
};
#define throw ::torch::aot_inductor::thrower() =

/* ---- handles ---- */

/* Owns an object of PyTorch or of the shim. */
template <typename Handle, AOTITorchError (*release_object)(Handle)> class RAIIHandle : owned {
  public:
    RAIIHandle() = default;
    RAIIHandle(Handle handle) : handle_(handle) {}
    RAIIHandle(RAIIHandle &&other) : handle_(other.release()) {}
    RAIIHandle &operator=(RAIIHandle &&other)
    {
        Handle handle = other.release();
        drop();
        handle_ = handle;
        return *this;
    }
    ~RAIIHandle() { drop(); }
    operator Handle() const { return handle_; }
    Handle get() const { return handle_; }
    Handle release()
    {
        Handle handle = handle_;
        handle_ = nullptr;
        return handle;
    }
    void reset() { drop(); }

  protected:
    void drop() override
    {
        Handle handle = release();
        if (handle != nullptr)
            release_object(handle);
    }

  private:
    Handle handle_ = nullptr;
};

class RAIIAtenTensorHandle : public RAIIHandle<AtenTensorHandle, aoti_torch_delete_tensor_object> {
  public:
    using RAIIHandle::RAIIHandle;
    int64_t size(int64_t dimension) const { return sizes()[dimension]; }
    int64_t stride(int64_t dimension) const { return strides()[dimension]; }
    int64_t storage_offset() const
    {
        int64_t offset;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(get(), &offset));
        return offset;
    }
    void *data_ptr() const
    {
        void *data;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(get(), &data));
        return data;
    }
    int64_t *sizes() const
    {
        int64_t *all;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(get(), &all));
        return all;
    }
    int64_t *strides() const
    {
        int64_t *all;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(get(), &all));
        return all;
    }
};
#ifdef AOTICACHE_WRAPPER_USES_VALUES
using RAIIC10IValueHandle = RAIIHandle<C10IValueHandle, aoti_torch_delete_c10_value_object>;
#endif

/* Borrows a tensor: a constant or an input. */
class ConstantHandle {
  public:
    ConstantHandle() = default;
    explicit ConstantHandle(AtenTensorHandle handle) : handle_(handle) {}
    operator AtenTensorHandle() const { return handle_; }
    AtenTensorHandle tensor() const { return handle_; }
    AtenTensorHandle get() const { return handle_; }
    void *data_ptr() const
    {
        void *data;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(handle_, &data));
        return data;
    }
    int64_t *sizes() const
    {
        int64_t *all;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(handle_, &all));
        return all;
    }
    int64_t *strides() const
    {
        int64_t *all;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(handle_, &all));
        return all;
    }

  private:
    AtenTensorHandle handle_ = nullptr;
};
static_assert(sizeof(ConstantHandle) == sizeof(AtenTensorHandle), "constants of a call are read as these");

/* The inputs of a run, which takes ownership of all of them; those of a plain kernel (runtime/kernel.h) are borrowed. */
#ifdef AOTICACHE_WRAPPER_IS_PLAIN
struct borrowed_input : ConstantHandle {
    using ConstantHandle::ConstantHandle;
    int64_t size(int64_t dimension) const { return sizes()[dimension]; }
    int64_t stride(int64_t dimension) const { return strides()[dimension]; }
    void reset() {}
};
#endif
class stolen_inputs {
  public:
    explicit stolen_inputs(AtenTensorHandle *handles) : handles_(handles) {}
#ifdef AOTICACHE_WRAPPER_IS_PLAIN
    borrowed_input operator[](size_t i) { return borrowed_input(handles_[i]); }
#else
    RAIIAtenTensorHandle operator[](size_t i)
    {
        AtenTensorHandle handle = handles_[i];
        handles_[i] = nullptr;
        return RAIIAtenTensorHandle(handle);
    }
#endif
    void clear() {}

  private:
    AtenTensorHandle *handles_;
};
inline stolen_inputs steal_from_raw_handles_to_raii_handles(AtenTensorHandle *handles, size_t)
{
    return stolen_inputs(handles); /* the container frees those that are not taken */
}

inline AtenTensorHandle reinterpret_tensor_wrapper(AtenTensorHandle self, int64_t ndim, const int64_t *sizes,
                                                   const int64_t *strides, int64_t storage_offset)
{
    AtenTensorHandle result = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(self, ndim, sizes, strides, storage_offset, &result));
    return result;
}

inline void *get_data_ptr_wrapper(AtenTensorHandle tensor)
{
    void *data = nullptr;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(tensor, &data));
    return data;
}
inline AtenTensorHandle unwrap_raii_handle_if_needed(const RAIIAtenTensorHandle &handle)
{
    return handle.get();
}
inline const ConstantHandle &unwrap_raii_handle_if_needed(const ConstantHandle &handle)
{
    return handle;
}
inline RAIIAtenTensorHandle wrap_with_raii_handle_if_needed(AtenTensorHandle handle)
{
    return RAIIAtenTensorHandle(handle);
}
inline RAIIAtenTensorHandle wrap_with_raii_handle_if_needed(const ConstantHandle &handle) = delete;
template <class T> T &temporary_reference(T &&value)
{
    return value;
}
/* Creates a tensor of one number; the wrapper's declarations contain the functions that it needs. */
#define SCALAR_TO_TENSOR(dtype, type)                                                   \
    inline RAIIAtenTensorHandle scalar_to_tensor_handle(type value)                     \
    {                                                                                   \
        AtenTensorHandle made;                                                          \
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_scalar_to_tensor_##dtype(value, &made)); \
        return RAIIAtenTensorHandle(made);                                              \
    }
#ifdef AOTICACHE_WRAPPER_USES_SCALARS
SCALAR_TO_TENSOR(float32, float)
SCALAR_TO_TENSOR(float64, double)
SCALAR_TO_TENSOR(uint8, uint8_t)
SCALAR_TO_TENSOR(int8, int8_t)
SCALAR_TO_TENSOR(int16, int16_t)
SCALAR_TO_TENSOR(int32, int32_t)
SCALAR_TO_TENSOR(int64, int64_t)
SCALAR_TO_TENSOR(bool, bool)
SCALAR_TO_TENSOR(complex64, c10::complex<float>)
SCALAR_TO_TENSOR(complex128, c10::complex<double>)
#endif
#undef SCALAR_TO_TENSOR
[[maybe_unused]] inline int64_t align(int64_t bytes)
{
    return (bytes + 63) & -64;
}

AOTI_NOINLINE inline void assert_size_stride(AtenTensorHandle tensor, std::initializer_list<int64_t> want_sizes,
                                             std::initializer_list<int64_t> want_strides, const char *op = nullptr)
{
    int64_t ndim, numel, *sizes, *strides, wanted = (int64_t)want_sizes.size();
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor, &ndim));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_numel(tensor, &numel));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor, &sizes));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor, &strides));
    char message[512];
    const char *where = op != nullptr ? op : "?";
    if (ndim != wanted) {
        snprintf(message, sizeof message, "expected ndim %lld but got %lld\nError in op: %s", (long long)wanted,
                 (long long)ndim, where);
        leave_run(message);
    }
    for (int64_t i = 0; i < ndim && numel != 0; i++) {
        int64_t size = want_sizes.begin()[i], stride = want_strides.begin()[i];
        if (size == sizes[i] && (stride == strides[i] || size <= 1))
            continue;
        snprintf(message, sizeof message, "expected size %lld==%lld, stride %lld==%lld at dim=%lld\nError in op: %s",
                 (long long)sizes[i], (long long)size, (long long)strides[i], (long long)stride, (long long)i, where);
        leave_run(message);
    }
}

#define CACHE_TORCH_DTYPE(name) static constexpr int32_t cached_torch_dtype_##name = ::aoticache_torch::dtype_##name
#define CACHE_TORCH_DEVICE(name) \
    static constexpr int32_t cached_torch_device_type_##name = ::aoticache_torch::device_type_##name
#define CACHE_TORCH_LAYOUT(name) static constexpr int32_t cached_torch_layout_##name = ::aoticache_torch::layout_##name
#define CACHE_TORCH_MEMORY_FORMAT(name) \
    static constexpr int32_t cached_torch_memory_format_##name = ::aoticache_torch::memory_format_##name

/* ---- the model ---- */

enum ConstantType : uint8_t { Unknown = 0, Parameter = 1, Buffer = 2, TensorConstant = 3, FoldedConstant = 4 };

/* Numbers of a constant, kept as long as the library is loaded. */
struct number_list {
    int64_t *items = nullptr;
    size_t count = 0;
    void operator=(std::initializer_list<int64_t> values)
    {
        count = values.size();
        items = static_cast<int64_t *>(malloc((count + 1) * sizeof *items));
        for (size_t i = 0; items != nullptr && i < count; i++)
            items[i] = values.begin()[i];
    }
    ~number_list() { free(items); }
};

struct ParamInfo {
    const char *name = nullptr;
};

struct ConstInfo {
    const char *name = nullptr, *original_fqn = nullptr;
    number_list shape, stride;
    int32_t dtype = 0, device_type = 0, layout = 0, type = 0;
    int64_t offset = 0;
    size_t data_size = 0;
    bool from_folded = false;
};

struct AOTInductorModelKernelsBase {};

using ConstantMap = std::unordered_map<std::string, AtenTensorHandle>;

/* The constants of a call, in the wrapper's interface. */
struct constant_array {
    const AtenTensorHandle *handles = nullptr;
    const ConstantHandle &at(size_t i) const { return reinterpret_cast<const ConstantHandle *>(handles)[i]; }
    const constant_array *operator->() const { return this; }
};

class AOTInductorModelBase {
  public:
    AOTInductorModelBase(size_t inputs, size_t outputs, size_t constants, const std::string &,
                         std::optional<std::string>, bool include_weights)
        : num_inputs(inputs), num_outputs(outputs), num_constants(constants), weights_inside(include_weights)
    {
        inputs_info_ = new_array<ParamInfo>(inputs);
        outputs_info_ = new_array<ParamInfo>(outputs);
        constants_info_ = new_array<ConstInfo>(constants);
    }
    size_t num_inputs, num_outputs, num_constants;
    bool weights_inside;
    ParamInfo *inputs_info_, *outputs_info_;
    ConstInfo *constants_info_;
    std::string in_spec_, out_spec_;

  protected:
    /* Zero bytes are the same as default construction of these types. */
    template <typename T> static T *new_array(size_t count) { return static_cast<T *>(calloc(count + 1, sizeof(T))); }
    template <typename T> void update_constants_map(T &&) {}
    template <typename T> void update_constants_array(T &&) {}
    constant_array constants_;
    int32_t device_idx_ = -1, device_type_ = 0;
    std::shared_ptr<AOTInductorModelKernelsBase> kernels_;
};

class AOTInductorModel : public AOTInductorModelBase {
  public:
    AOTICACHE_COLD AOTInductorModel(std::shared_ptr<ConstantMap>, std::shared_ptr<std::vector<ConstantHandle>>,
                                    const std::string &, std::optional<std::string>);
    std::unordered_map<std::string, AtenTensorHandle> const_run_impl(DeviceStreamType, AOTIProxyExecutorHandle,
                                                                     bool initialization = false);
    void _const_run_impl(std::vector<AtenTensorHandle> &, DeviceStreamType, AOTIProxyExecutorHandle);
    void run_impl(AtenTensorHandle *, AtenTensorHandle *, DeviceStreamType, AOTIProxyExecutorHandle);

    /* Prepares the model for one call: its own constants and device. */
    void prepare(const aoticache_kernel_call *call)
    {
        constants_.handles = call->constants;
        device_idx_ = call->device_index;
        device_type_ = call->device_type;
    }
};

/* ---- connection to the container ---- */

union model_place {
    AOTInductorModel model;
    char bytes[sizeof(AOTInductorModel)];
    model_place() {}
    ~model_place() {}
};
static model_place described_model;

typedef void (*model_step)(AOTInductorModel *model, aoticache_kernel_call *call);

static void run_step(AOTInductorModel *model, aoticache_kernel_call *call)
{
    model->run_impl(call->inputs, call->outputs, reinterpret_cast<DeviceStreamType>(call->stream),
                    call->proxy_executor);
}

#ifdef AOTICACHE_WRAPPER_USES_FOLDS
static void fold_step(AOTInductorModel *model, aoticache_kernel_call *call)
{
    auto made = model->const_run_impl(reinterpret_cast<DeviceStreamType>(call->stream), call->proxy_executor, true);
    for (auto &one : made)
        for (size_t i = 0; i < model->num_constants; i++)
            if (std::string(model->constants_info_[i].name) == one.first)
                call->outputs[i] = one.second;
}
#endif

#ifdef AOTICACHE_WRAPPER_CATCHES
/* Calls a step. Drops what unwinding has not destroyed, while the model that owns it exists. */
static void call_step(model_step step, AOTInductorModel *model, aoticache_kernel_call *call)
{
    try {
        step(model, call);
        return;
    } catch (const ::std::exception &error) {
        snprintf(current_run->message, sizeof current_run->message, "%s", error.what());
    } catch (...) {
        snprintf(current_run->message, sizeof current_run->message, "the kernel failed with an unknown exception");
    }
    current_run->drop_all();
    __builtin_longjmp(current_run->target, 1);
}
#else
static void call_step(model_step step, AOTInductorModel *model, aoticache_kernel_call *call)
{
    step(model, call);
}
#endif

/* Not inlined: __builtin_longjmp() must not be called from the function that it jumps to. */
AOTI_NOINLINE static void take_step(model_step step, aoticache_kernel_call *call)
{
#ifdef AOTICACHE_WRAPPER_IS_PLAIN
    call_step(step, &described_model.model, call); /* without constants, on the CPU: nothing in it belongs to a call */
#else
    model_place place;
    memcpy(place.bytes, described_model.bytes, sizeof place.bytes);
    place.model.prepare(call);
    call_step(step, &place.model, call);
#endif
}

/* Runs a step. Runs of one thread may be nested: a proxy's operator may run another library, but not in this frame. */
AOTI_NOINLINE static AOTIRuntimeError guarded(model_step step, aoticache_kernel_call *call)
{
    run_frame frame;
    run_frame **current = &current_run; /* finding it is a function call, */
    __asm__("" : "+r"(current));        /* which the compiler would make again */
    run_frame *volatile outer = *current;
    aoticache_kernel_call *volatile of = call;
#ifdef AOTICACHE_WRAPPER_IS_PLAIN
    if (__atomic_load_n(&run_host, __ATOMIC_RELAXED) != call->host)
        __atomic_store_n(&run_host, call->host, __ATOMIC_RELAXED);
#endif
    *current = &frame;
    if (__builtin_setjmp(frame.target) == 0) {
        take_step(step, call);
        *current = outer;
        return AOTICACHE_KERNEL_OK;
    }
    run_frame *failed = current_run;
    current_run = outer;
    if (failed->of_call)
        return aoticache_kernel_fail_torch(of, failed->message);
    return aoticache_kernel_fail(of, "%s", failed->message);
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    return guarded(run_step, call);
}
#ifdef AOTICACHE_WRAPPER_USES_FOLDS
static AOTIRuntimeError fold(aoticache_kernel_call *call)
{
    return guarded(fold_step, call);
}
#endif

struct description {
    aoticache_kernel kernel;
    const char **names;
    aoticache_kernel_constant *constants;
};
static description described;
static pthread_once_t describe_once = PTHREAD_ONCE_INIT;

AOTICACHE_COLD static void describe_constants(const AOTInductorModel &model)
{
    const uint8_t *data = _binary_constants_bin_start;
    for (size_t i = 0; i < model.num_constants; i++) {
        const ConstInfo &info = model.constants_info_[i];
        aoticache_kernel_constant &constant = described.constants[i];
        constant.name = info.name;
        constant.original_fqn = info.original_fqn;
        constant.dtype = info.dtype;
        constant.ndim = (int32_t)info.shape.count;
        constant.sizes = info.shape.items;
        constant.strides = info.stride.items;
        constant.storage_offset = info.offset;
        constant.data_size = info.data_size;
        constant.type = info.type;
        constant.from_folded = info.from_folded;
        if (info.from_folded || !model.weights_inside)
            continue;
        constant.data = data;
        data += ((size_t)info.data_size + 63) & ~(size_t)63;
    }
}

AOTICACHE_COLD static void describe(void)
{
    run_frame frame; /* owns the constructor's arguments */
    current_run = &frame;
    AOTInductorModel &model = described_model.model;
    new (at_place{&described_model}) AOTInductorModel(nullptr, nullptr, "cpu", std::nullopt);
    current_run = nullptr;
    const size_t inputs = model.num_inputs, outputs = model.num_outputs, constants = model.num_constants;
    described.names = static_cast<const char **>(calloc(inputs + outputs + 1, sizeof(char *)));
    described.constants =
        static_cast<aoticache_kernel_constant *>(calloc(constants + 1, sizeof(aoticache_kernel_constant)));
    if (model.inputs_info_ == nullptr || model.outputs_info_ == nullptr || model.constants_info_ == nullptr ||
        described.names == nullptr || described.constants == nullptr)
        return; /* the kernel then has no size, and the container refuses it */
    for (size_t i = 0; i < inputs; i++)
        described.names[i] = model.inputs_info_[i].name;
    for (size_t i = 0; i < outputs; i++)
        described.names[inputs + i] = model.outputs_info_[i].name;
    describe_constants(model);
    aoticache_kernel &kernel = described.kernel;
    kernel.device = "cpu";
    kernel.num_inputs = inputs;
    kernel.input_names = described.names;
    kernel.num_outputs = outputs;
    kernel.output_names = described.names + inputs;
    kernel.num_constants = constants;
    kernel.constants = described.constants;
    kernel.in_spec = model.in_spec_.c_str();
    kernel.out_spec = model.out_spec_.c_str();
    kernel.run = run;
#ifdef AOTICACHE_WRAPPER_USES_FOLDS
    kernel.fold = fold;
#endif
#ifdef AOTICACHE_WRAPPER_IS_PLAIN
    kernel.plain = true;
#endif
    kernel.size = sizeof kernel;
}

/* Kernels are linked without the compiler's start files, of which they need only this: the identity of a library, by which its exit
   functions are found and called at its end. */
extern "C" __attribute__((visibility("hidden"))) void *__dso_handle;
extern "C" void __cxa_finalize(void *handle);

__attribute__((destructor, cold)) static void forget_description(void)
{
    __cxa_finalize(&__dso_handle);
    const AOTInductorModel &model = described_model.model;
    for (size_t i = 0; described.kernel.size != 0 && i < model.num_constants; i++) {
        free(model.constants_info_[i].shape.items);
        free(model.constants_info_[i].stride.items);
    }
    free(model.inputs_info_);
    free(model.outputs_info_);
    free(model.constants_info_);
    free(described.names);
    free(described.constants);
}

} // namespace aot_inductor
} // namespace torch

void *__dso_handle = &__dso_handle;

extern "C" const aoticache_kernel *aoticache_kernel_described(void)
{
    pthread_once(&torch::aot_inductor::describe_once, torch::aot_inductor::describe);
    return &torch::aot_inductor::described.kernel;
}
__attribute__((used)) static const aoticache_kernel_any_fn *const aoticache_kernel_linked = aoticache_kernel_core;

#endif
