// Which sanitizer this program was built with. Their shadow memory counts as terabytes of data, and they end the
// process when memory runs out.
#pragma once

#if defined(__has_feature)
#define ATTNBENCH_HAS_FEATURE(name) __has_feature(name)
#else
#define ATTNBENCH_HAS_FEATURE(name) 0
#endif

namespace attnbench {

#if defined(__SANITIZE_THREAD__) || ATTNBENCH_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

/// AddressSanitizer or ThreadSanitizer.
#if defined(__SANITIZE_ADDRESS__) || ATTNBENCH_HAS_FEATURE(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = kThreadSanitized;
#endif

}  // namespace attnbench
