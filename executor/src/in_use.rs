//! Values by key that live as long as somebody uses them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

/// What is in use, by what it is for.
#[derive(Debug)]
pub(crate) struct InUse<K, V> {
    values: Mutex<BTreeMap<K, Weak<V>>>,
}

impl<K, V> Default for InUse<K, V> {
    fn default() -> Self {
        Self { values: Mutex::default() }
    }
}

impl<K: Ord, V> InUse<K, V> {
    /// The value that others use for `key`, or a new one. It is gone with the last that holds it.
    pub(crate) fn get(&self, key: K, new: impl FnOnce() -> V) -> Arc<V> {
        let mut values = self.values();
        values.retain(|_, value| value.strong_count() > 0);
        if let Some(value) = values.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        let value = Arc::new(new());
        values.insert(key, Arc::downgrade(&value));
        value
    }

    /// Whether somebody uses a value for `key`.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.values().get(key).is_some_and(|value| value.strong_count() > 0)
    }

    /// How many values are used for keys that are `wanted`.
    pub(crate) fn count(&self, wanted: impl Fn(&K) -> bool) -> usize {
        self.values().iter().filter(|(key, value)| wanted(key) && value.strong_count() > 0).count()
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<K, Weak<V>>> {
        self.values.lock().expect("nothing panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_shared_while_it_is_used_and_made_anew_after_that() {
        let in_use = InUse::default();
        let first = in_use.get("a", || 1);
        assert_eq!((*in_use.get("a", || 2), *in_use.get("b", || 3)), (1, 3));
        assert_eq!((in_use.has(&"a"), in_use.has(&"b"), in_use.count(|_| true)), (true, false, 1));
        drop(first);
        assert_eq!(*in_use.get("a", || 4), 4);
    }
}
