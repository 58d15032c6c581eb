/*
 * eager/compile/inductor/wrapper_std: the part of the standard library that wrappers use, found here before the real one. It
 * does not need libstdc++. Text is truncated at 1 KB: it is only used in error messages.
 *
 * Included by wrapper.h, in the same directory, inside of torch::aot_inductor and after the classes of a run.
 */
#ifndef AOTICACHE_INDUCTOR_WRAPPER_STD_H
#define AOTICACHE_INDUCTOR_WRAPPER_STD_H

namespace std {

using ::std::initializer_list;

template <typename T> struct remove_reference {
    using type = T;
};
template <typename T> struct remove_reference<T &> {
    using type = T;
};
template <typename T> struct remove_reference<T &&> {
    using type = T;
};
template <typename T> constexpr typename remove_reference<T>::type &&move(T &&value) noexcept
{
    return static_cast<typename remove_reference<T>::type &&>(value);
}
template <typename T> constexpr T &&forward(typename remove_reference<T>::type &value) noexcept
{
    return static_cast<T &&>(value);
}

/* Does not own its characters: names and specifications are literals. */
class string {
  public:
    string(const char *text = "") : text_(text) {}
    const char *c_str() const { return text_; }
    bool operator==(const string &other) const { return strcmp(text_, other.text_) == 0; }

  private:
    const char *text_;
};

class stringstream {
  public:
    stringstream() { text_[0] = '\0'; }
    stringstream &operator<<(const char *text) { return add("%s", text, 0); }
    stringstream &operator<<(const string &text) { return add("%s", text.c_str(), 0); }
    stringstream &operator<<(const stringstream &text) { return add("%s", text.text_, 0); }
    stringstream &operator<<(char value) { return add("%c", nullptr, value); }
    stringstream &operator<<(bool value) { return add("%lld", nullptr, value); }
    stringstream &operator<<(int value) { return add("%lld", nullptr, value); }
    stringstream &operator<<(unsigned value) { return add("%lld", nullptr, value); }
    stringstream &operator<<(long value) { return add("%lld", nullptr, value); }
    stringstream &operator<<(unsigned long value) { return add("%llu", nullptr, (long long)value); }
    stringstream &operator<<(long long value) { return add("%lld", nullptr, value); }
    stringstream &operator<<(unsigned long long value) { return add("%llu", nullptr, (long long)value); }
    stringstream &operator<<(double value)
    {
        char text[32];
        snprintf(text, sizeof text, "%g", value);
        return *this << text;
    }
    const stringstream &str() const { return *this; }
    const char *c_str() const { return text_; }

  private:
    char text_[1024];
    size_t used_ = 0;
    AOTI_NOINLINE stringstream &add(const char *format, const char *text, long long value)
    {
        int length = text != nullptr ? snprintf(text_ + used_, sizeof text_ - used_, format, text)
                                     : snprintf(text_ + used_, sizeof text_ - used_, format, value);
        if (length > 0)
            used_ = used_ + (size_t)length < sizeof text_ ? used_ + (size_t)length : sizeof text_ - 1;
        return *this;
    }
};

template <typename T> stringstream to_string(T value)
{
    stringstream out;
    out << value;
    return out;
}
template <typename A> stringstream operator+(stringstream text, const A &more)
{
    text << more;
    return text;
}
template <typename A> stringstream operator+(const string &text, const A &more)
{
    stringstream out;
    out << text << more;
    return out;
}
inline stringstream operator+(const char *text, const stringstream &more)
{
    stringstream out;
    out << text << more;
    return out;
}

struct silent_stream {
    template <typename T> silent_stream &operator<<(const T &) { return *this; }
};
static silent_stream cerr;

struct runtime_error {
    const char *message;
    explicit runtime_error(const char *text) : message(text) {}
    explicit runtime_error(const string &text) : message(text.c_str()) {}
    explicit runtime_error(const stringstream &text) : message(text.c_str()) {}
};

/* Grows, and moves its elements. Owned by the run that creates it. */
template <typename T> class vector : owned {
  public:
    using value_type = T;
    vector() = default;
    explicit vector(size_t count) { resize(count); }
    vector(initializer_list<T> items)
    {
        reserve(items.size());
        for (const T &item : items)
            emplace_back(item);
    }
    vector(vector &&other) : items_(other.items_), size_(other.size_), room_(other.room_)
    {
        other.items_ = nullptr;
        other.size_ = other.room_ = 0;
    }
    vector &operator=(vector &&other)
    {
        drop();
        items_ = other.items_, size_ = other.size_, room_ = other.room_;
        other.items_ = nullptr;
        other.size_ = other.room_ = 0;
        return *this;
    }
    ~vector() { drop(); }
    void reserve(size_t count)
    {
        if (count <= room_)
            return;
        T *items = static_cast<T *>(malloc(count * sizeof(T)));
        if (items == nullptr)
            leave_run("out of memory");
        for (size_t i = 0; i < size_; i++) {
            new (at_place{items + i}) T(move(items_[i]));
            items_[i].~T();
        }
        free(items_);
        items_ = items;
        room_ = count;
    }
    void resize(size_t count)
    {
        reserve(count);
        while (size_ < count)
            new (at_place{items_ + size_++}) T();
    }
    template <typename... A> T &emplace_back(A &&...values)
    {
        if (size_ == room_)
            reserve(room_ * 2 + 4);
        return *new (at_place{items_ + size_++}) T(forward<A>(values)...);
    }
    void push_back(T value) { emplace_back(move(value)); }
    void clear()
    {
        while (size_ > 0)
            items_[--size_].~T();
    }
    T &operator[](size_t i) { return items_[i]; }
    const T &operator[](size_t i) const { return items_[i]; }
    T &at(size_t i) { return items_[i]; }
    T *data() { return items_; }
    const T *data() const { return items_; }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T *begin() { return items_; }
    T *end() { return items_ + size_; }
    const T *cbegin() const { return items_; }

  protected:
    void drop() override
    {
        clear();
        free(items_);
        items_ = nullptr;
        room_ = 0;
    }

  private:
    T *items_ = nullptr;
    size_t size_ = 0, room_ = 0;
};

template <typename T, size_t N> struct array {
    T items[N];
    using value_type = T;
    const T *cbegin() const { return items; }
    const T *begin() const { return items; }
    const T *end() const { return items + N; }
    const T *data() const { return items; }
    T *data() { return items; }
    T &operator[](size_t i) { return items[i]; }
    constexpr size_t size() const { return N; }
};
template <typename T> struct array<T, 0> {
    const T *cbegin() const { return nullptr; }
    const T *data() const { return nullptr; }
    T *data() { return nullptr; }
    constexpr size_t size() const { return 0; }
};
template <typename T, typename... U> array(T, U...) -> array<T, 1 + sizeof...(U)>;

struct nullopt_t {};
static const nullopt_t nullopt;
template <typename T> class optional {
  public:
    optional() = default;
    optional(nullopt_t) {}
    optional(const T &value) : has_(true), value_(value) {}
    bool has_value() const { return has_; }
    explicit operator bool() const { return has_; }
    T &value() { return value_; }
    T &operator*() { return value_; }

  private:
    bool has_ = false;
    T value_{};
};

/* For objects that live as long as the library: not counted and never freed. */
template <typename T> class shared_ptr {
  public:
    shared_ptr(T *pointer = nullptr) : pointer_(pointer) {}
    template <typename U> shared_ptr(const shared_ptr<U> &other) : pointer_(other.get()) {}
    T *operator->() const { return pointer_; }
    T *get() const { return pointer_; }

  private:
    T *pointer_;
};
template <typename T> using unique_ptr = shared_ptr<T>;
template <typename T> shared_ptr<T> make_unique()
{
    static T one;
    return shared_ptr<T>(&one);
}

/* A list of pairs: the constants that folding computes. */
template <typename K, typename V> class unordered_map {
  public:
    struct pair {
        K first;
        V second;
    };
    unordered_map() = default;
    unordered_map(initializer_list<pair>) {}
    unordered_map(unordered_map &&other) : items_(move(other.items_)) {}
    void reserve(size_t count) { items_.reserve(count); }
    V &operator[](const K &key)
    {
        for (pair &one : items_)
            if (one.first == key)
                return one.second;
        return items_.emplace_back(pair{key, V()}).second;
    }
    void emplace(const K &key, V value) { (*this)[key] = value; }
    pair *begin() { return items_.begin(); }
    pair *end() { return items_.end(); }

  private:
    vector<pair> items_;
};

template <typename T> struct numeric_limits;
template <> struct numeric_limits<float> {
    static constexpr float infinity() { return __builtin_inff(); }
    static constexpr float quiet_NaN() { return __builtin_nanf(""); }
    static constexpr float max() { return __FLT_MAX__; }
    static constexpr float lowest() { return -__FLT_MAX__; }
};
template <> struct numeric_limits<double> {
    static constexpr double infinity() { return __builtin_inf(); }
    static constexpr double quiet_NaN() { return __builtin_nan(""); }
    static constexpr double max() { return __DBL_MAX__; }
    static constexpr double lowest() { return -__DBL_MAX__; }
};
template <> struct numeric_limits<int64_t> {
    static constexpr int64_t max() { return INT64_MAX; }
    static constexpr int64_t min() { return INT64_MIN; }
};

template <typename T> constexpr T max(T a, T b)
{
    return a < b ? b : a;
}
template <typename T> constexpr T min(T a, T b)
{
    return b < a ? b : a;
}
template <typename T> constexpr T max(initializer_list<T> all)
{
    T most = *all.begin();
    for (T one : all)
        most = most < one ? one : most;
    return most;
}
template <typename T> constexpr T min(initializer_list<T> all)
{
    T least = *all.begin();
    for (T one : all)
        least = one < least ? one : least;
    return least;
}
using ::ceil;
using ::floor;
using ::sqrt;
using ::trunc;
template <typename A, typename B> inline double pow(A base, B exponent)
{
    return ::pow(static_cast<double>(base), static_cast<double>(exponent));
}
inline float pow(float base, float exponent)
{
    return ::powf(base, exponent);
}
inline double abs(double value)
{
    return fabs(value);
}
inline int64_t abs(int64_t value)
{
    return value < 0 ? -value : value;
}
inline int64_t lrint(double value)
{
    return ::lrint(value);
}

} // namespace std

#endif
