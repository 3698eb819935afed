package tokenizer

import "slices"

// trie finds all texts of a set that begin at a place.
type trie struct {
	root  [256]int32 // children of the first node, the most visited
	nodes []trieNode
}

type trieNode struct {
	keys  []byte // sorted
	next  []int32
	value int32 // -1: no text ends here
}

func newTrie() *trie { return &trie{nodes: []trieNode{{value: -1}}} }

// insert adds a text that is not empty.
func (t *trie) insert(s string, value int32) {
	at := int32(0)
	for i := range len(s) {
		n := &t.nodes[at]
		k, ok := slices.BinarySearch(n.keys, s[i])
		if ok {
			at = n.next[k]
			continue
		}
		to := int32(len(t.nodes))
		n.keys = slices.Insert(n.keys, k, s[i])
		n.next = slices.Insert(n.next, k, to)
		if at == 0 {
			t.root[s[i]] = to
		}
		t.nodes = append(t.nodes, trieNode{value: -1})
		at = to
	}
	t.nodes[at].value = value
}

// step follows one byte; 0 is nowhere.
func (t *trie) step(at int32, b byte) int32 {
	if at == 0 {
		return t.root[b]
	}
	n := &t.nodes[at]
	if len(n.keys) > 8 {
		if k, ok := slices.BinarySearch(n.keys, b); ok {
			return n.next[k]
		}
		return 0
	}
	for k, c := range n.keys {
		if c == b {
			return n.next[k]
		}
	}
	return 0
}
