// Whether this program was built with AddressSanitizer or ThreadSanitizer. Their shadow memory counts as
// terabytes of data, and they end the process when memory runs out.
#pragma once

namespace attnbench {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace attnbench
