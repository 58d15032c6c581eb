/*
 * base: the foundation of all other directories.
 *
 * Owns the status codes and the error detail, SHA-256, the two clocks, the names and numbers of dtypes, device types,
 * layouts and memory formats, and the logging callback. Does not depend on caches, libraries or operators.
 *
 * Thread safety, for everything here: functions keep no state and may be called from any thread at any time.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_BASE_BASE_H
#define AOTICACHE_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define AOTICACHE_API __attribute__((visibility("default")))
#define AOTICACHE_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#else
#define AOTICACHE_API
#define AOTICACHE_PRINTF(format_index, first_index)
#endif

/*
 * Option structs, and all other structs whose first member is `size_t size`, are filled in by the caller and only ever grow
 * at their end. Initialize them with the struct's AOTICACHE_..._INIT, which sets the size and the defaults: a program and a
 * library of different versions then work together. One rule holds for every function that takes such a struct:
 *
 *   - A shorter struct (the program is older than the library): the members that it lacks have their defaults.
 *   - A longer struct (the program is newer): accepted if all bytes beyond this library's struct are zero, that is if the
 *     program uses nothing that this library does not know.
 *   - AOTICACHE_INVALID otherwise, with both sizes in the message: the struct is longer and not zero there, or the size is
 *     impossible (0, less than the size of the member itself, not a multiple of it, more than 4096).
 *
 * The caller's struct is read during the call and not changed, unless a function says otherwise.
 *
 * The AOTICACHE_..._INIT macros expand to this macro: all members are zero except `size`. C names the member; C++ has no
 * such initializer before C++20, and gcc warns about it there.
 */
#ifdef __cplusplus
template <typename Struct> static inline Struct aoticache_sized_init()
{
    Struct made = Struct();
    made.size = sizeof(Struct);
    return made;
}
#define AOTICACHE_SIZED_INIT(type) aoticache_sized_init<type>()
#else
#define AOTICACHE_SIZED_INIT(type) {.size = sizeof(type)}
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * All results that a function of this library can return: name, number, text. Numbers are fixed and never reused; new ones
 * are added at the end. NOT_FOUND is a result, not a failure.
 */
#define AOTICACHE_STATUS_LIST(X)                                           \
    X(OK, 0, "success")                                                    \
    X(NOT_FOUND, 1, "not found")                                           \
    X(INVALID, 2, "invalid argument")                                      \
    X(NO_MEMORY, 3, "out of memory")                                       \
    X(IO, 4, "input or output failed")                                     \
    X(CORRUPT, 5, "stored data is damaged")                                \
    X(LOCKED, 6, "timed out waiting for a lock")                           \
    X(DENIED, 7, "refused: not trusted or not permitted")                  \
    X(UNSUPPORTED, 8, "not supported by this machine, process or version") \
    X(COMPILE_FAILED, 9, "the compile failed")                             \
    X(LOAD_FAILED, 10, "the library cannot be loaded")                     \
    X(RUN_FAILED, 11, "the kernel reported a failure")                     \
    X(EXISTS, 12, "already exists")                                        \
    X(MISMATCH, 13, "conflicts with existing data")

typedef enum aoticache_status {
#define AOTICACHE_STATUS_ENUM(name, number, text) AOTICACHE_##name = number,
    AOTICACHE_STATUS_LIST(AOTICACHE_STATUS_ENUM)
#undef AOTICACHE_STATUS_ENUM
} aoticache_status;

#define AOTICACHE_ERROR_MESSAGE_BYTES 1024

/*
 * Detail of a failure. The caller provides the storage, so that out-of-memory can be reported too. `message` is one line
 * without a newline (a compiler's own output may add more lines), always terminated, and truncated if it does not fit. A
 * function that returns AOTICACHE_OK or AOTICACHE_NOT_FOUND leaves it untouched, except that the dispatcher writes what it
 * did not find. An error argument may always be NULL.
 */
typedef struct aoticache_error {
    aoticache_status status;
    char message[AOTICACHE_ERROR_MESSAGE_BYTES];
} aoticache_error;

/* Returns "IO", "NOT_FOUND", ...; "UNKNOWN" for a number outside the list. Static storage. */
AOTICACHE_API const char *aoticache_status_name(aoticache_status status);

/* Returns the text from the list above. Static storage. */
AOTICACHE_API const char *aoticache_status_text(aoticache_status status);

/* Fills `error` (may be NULL) and returns `status`, so that a failure is one statement. Preserves errno. */
AOTICACHE_API aoticache_status aoticache_error_set(aoticache_error *error, aoticache_status status, const char *format,
                                                   ...) AOTICACHE_PRINTF(3, 4);

/*
 * Does the same, and appends ": " and the text of `errno_value` to the message. The status is derived from errno_value:
 * ENOMEM gives NO_MEMORY, EACCES, EPERM and ELOOP give DENIED, everything else (including a full disk and a read-only file
 * system) gives IO.
 */
AOTICACHE_API aoticache_status aoticache_error_set_errno(aoticache_error *error, int errno_value, const char *format,
                                                         ...) AOTICACHE_PRINTF(3, 4);

/*
 * Frees memory that a function of this library returned and that must be freed with free(): for programs that have no
 * free(), or a different one than this library. NULL is allowed; preserves errno.
 */
AOTICACHE_API void aoticache_free(void *text);

typedef enum aoticache_log_level {
    AOTICACHE_LOG_ERROR = 0,
    AOTICACHE_LOG_WARNING = 1,
    AOTICACHE_LOG_INFO = 2,
    AOTICACHE_LOG_DEBUG = 3,
} aoticache_log_level;

/*
 * Receives messages: the library itself prints nothing. `line` has no newline and is borrowed for the call. The function may
 * be called from any thread, also from several concurrently, and must not call back into the object that logs.
 */
typedef void (*aoticache_log_fn)(void *user, aoticache_log_level level, const char *line);

typedef struct aoticache_logger {
    aoticache_log_fn log; /* NULL: messages are dropped */
    void *user;
} aoticache_logger;

/* ---- digests ---- */

#define AOTICACHE_DIGEST_BYTES 32
#define AOTICACHE_DIGEST_HEX_BYTES 65 /* 64 lower-case hexadecimal digits and the terminator */

/* A SHA-256 digest (FIPS 180-4). */
typedef struct aoticache_digest {
    uint8_t bytes[AOTICACHE_DIGEST_BYTES];
} aoticache_digest;

static inline bool aoticache_digest_equal(const aoticache_digest *a, const aoticache_digest *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* ---- dtypes, devices, layouts, memory formats: PyTorch's numbers (c10/core/ScalarType.h, c10/core/DeviceType.h,
 * c10/core/Layout.h, c10/core/MemoryFormat.h) and PyTorch's names ("float32", "cuda", "strided", "channels_last") ---- */

/* name, number, bytes of one element */
#define AOTICACHE_DTYPE_LIST(X)                \
    X(UINT8, uint8, 0, 1)                      \
    X(INT8, int8, 1, 1)                        \
    X(INT16, int16, 2, 2)                      \
    X(INT32, int32, 3, 4)                      \
    X(INT64, int64, 4, 8)                      \
    X(FLOAT16, float16, 5, 2)                  \
    X(FLOAT32, float32, 6, 4)                  \
    X(FLOAT64, float64, 7, 8)                  \
    X(COMPLEX32, complex32, 8, 4)              \
    X(COMPLEX64, complex64, 9, 8)              \
    X(COMPLEX128, complex128, 10, 16)          \
    X(BOOL, bool, 11, 1)                       \
    X(BFLOAT16, bfloat16, 15, 2)               \
    X(FLOAT8_E5M2, float8_e5m2, 23, 1)         \
    X(FLOAT8_E4M3FN, float8_e4m3fn, 24, 1)     \
    X(FLOAT8_E5M2FNUZ, float8_e5m2fnuz, 25, 1) \
    X(FLOAT8_E4M3FNUZ, float8_e4m3fnuz, 26, 1) \
    X(UINT16, uint16, 27, 2)                   \
    X(UINT32, uint32, 28, 4)                   \
    X(UINT64, uint64, 29, 8)                   \
    X(FLOAT8_E8M0FNU, float8_e8m0fnu, 44, 1)   \
    X(FLOAT4_E2M1FN_X2, float4_e2m1fn_x2, 45, 1)

typedef enum aoticache_dtype {
#define AOTICACHE_DTYPE_ENUM(upper, lower, number, bytes) AOTICACHE_DTYPE_##upper = number,
    AOTICACHE_DTYPE_LIST(AOTICACHE_DTYPE_ENUM)
#undef AOTICACHE_DTYPE_ENUM
} aoticache_dtype;

#define AOTICACHE_DEVICE_TYPE_LIST(X) \
    X(CPU, cpu, 0)                    \
    X(CUDA, cuda, 1)                  \
    X(XPU, xpu, 12)                   \
    X(MPS, mps, 13)                   \
    X(META, meta, 14)                 \
    X(PRIVATEUSE1, privateuseone, 20)

typedef enum aoticache_device_type {
#define AOTICACHE_DEVICE_TYPE_ENUM(upper, lower, number) AOTICACHE_DEVICE_TYPE_##upper = number,
    AOTICACHE_DEVICE_TYPE_LIST(AOTICACHE_DEVICE_TYPE_ENUM)
#undef AOTICACHE_DEVICE_TYPE_ENUM
} aoticache_device_type;

#define AOTICACHE_LAYOUT_LIST(X) \
    X(STRIDED, strided, 0)       \
    X(SPARSE_COO, sparse_coo, 1) \
    X(SPARSE_CSR, sparse_csr, 2) \
    X(MKLDNN, _mkldnn, 3)        \
    X(SPARSE_CSC, sparse_csc, 4) \
    X(SPARSE_BSR, sparse_bsr, 5) \
    X(SPARSE_BSC, sparse_bsc, 6) \
    X(JAGGED, jagged, 7)

typedef enum aoticache_layout {
#define AOTICACHE_LAYOUT_ENUM(upper, lower, number) AOTICACHE_LAYOUT_##upper = number,
    AOTICACHE_LAYOUT_LIST(AOTICACHE_LAYOUT_ENUM)
#undef AOTICACHE_LAYOUT_ENUM
} aoticache_layout;

#define AOTICACHE_MEMORY_FORMAT_LIST(X) \
    X(CONTIGUOUS, contiguous_format, 0) \
    X(PRESERVE, preserve_format, 1)     \
    X(CHANNELS_LAST, channels_last, 2)  \
    X(CHANNELS_LAST_3D, channels_last_3d, 3)

typedef enum aoticache_memory_format {
#define AOTICACHE_MEMORY_FORMAT_ENUM(upper, lower, number) AOTICACHE_MEMORY_FORMAT_##upper = number,
    AOTICACHE_MEMORY_FORMAT_LIST(AOTICACHE_MEMORY_FORMAT_ENUM)
#undef AOTICACHE_MEMORY_FORMAT_ENUM
} aoticache_memory_format;

static inline const char *aoticache_device_type_name(int32_t device_type)
{
    switch (device_type) {
#define AOTICACHE_DEVICE_TYPE_NAME(upper, lower, number) \
    case number:                                         \
        return #lower;
        AOTICACHE_DEVICE_TYPE_LIST(AOTICACHE_DEVICE_TYPE_NAME)
#undef AOTICACHE_DEVICE_TYPE_NAME
    default:
        return NULL;
    }
}

/* A device: type and index; index -1 is "the current one", as in PyTorch. */
typedef struct aoticache_device {
    int32_t type;  /* aoticache_device_type */
    int32_t index; /* -1, or 0 and up */
} aoticache_device;

/*
 * Devices as expressions, in C and in C++: `metadata.device = AOTICACHE_DEVICE_CPU`, `AOTICACHE_DEVICE_CUDA(0)`. In C,
 * initialize a variable with static storage with `{AOTICACHE_DEVICE_TYPE_CPU, -1}` instead.
 */
#ifdef __cplusplus
#define AOTICACHE_DEVICE(type, index) (aoticache_device{(int32_t)(type), (int32_t)(index)})
#else
#define AOTICACHE_DEVICE(type, index) ((aoticache_device){(int32_t)(type), (int32_t)(index)})
#endif
#define AOTICACHE_DEVICE_CPU AOTICACHE_DEVICE(AOTICACHE_DEVICE_TYPE_CPU, -1)
#define AOTICACHE_DEVICE_CUDA(index) AOTICACHE_DEVICE(AOTICACHE_DEVICE_TYPE_CUDA, (index))

/* Returns the version of this library, "0.1.0". Static storage. */
AOTICACHE_API const char *aoticache_version(void);
#define AOTICACHE_VERSION "0.1.0"

/* ---- the end of a program ---- */

/*
 * Stops compiling in this process: for a program that ends while threads compile. Running compilers are killed within 0.1 s,
 * waits for compiles of other processes end, and this process starts no further compile. The cancelled compiles are not
 * remembered as failures, and kernels that are available keep answering. Afterwards wait for the threads with
 * aoticache_context_wait() or _free().
 */
AOTICACHE_API void aoticache_compiles_cancel(void);

#ifdef __cplusplus
}
#endif

#endif
