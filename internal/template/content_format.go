package template

import "strings"

// ContentFormat is how a template wants message.content: vLLM's --chat-template-content-format.
type ContentFormat string

// The formats that ContentFormat detects.
const (
	ContentString ContentFormat = "string" // one text
	ContentOpenAI ContentFormat = "openai" // a list of parts, as in the OpenAI API
)

// ContentFormat tells whether the template loops over the content of a message, as vLLM's "auto" detection does: over an element of
// messages (or of a variable made from them), directly, through a macro's parameter, or by the bare name "content".
func (t *Template) ContentFormat() ContentFormat {
	f := finder{root: stmtNodes(nil, t.body)}
	if f.loopsOverContent() {
		return ContentOpenAI
	}
	return ContentString
}

// SupportsDeveloperRole tells whether the template mentions the role "developer"; vLLM turns such messages into system messages for
// templates that do not.
func (t *Template) SupportsDeveloperRole() bool {
	return strings.Contains(t.source, `"developer"`) || strings.Contains(t.source, `'developer'`)
}

// Variables lists the variables that the template reads; a chat_template_kwarg of another name has no effect.
func (t *Template) Variables() []string {
	seen := map[string]bool{}
	var out []string
	visit(stmtNodes(nil, t.body), func(n node) {
		if v, ok := n.(*nameExpr); ok && !seen[v.name] {
			seen[v.name] = true
			out = append(out, v.name)
		}
	})
	return out
}

// finder looks through a whole template. It follows names without regard to their scopes, as vLLM does.
type finder struct {
	root []node
	odd  bool // a target that is not a name stands where vLLM expects one: it then gives up
	work int  // nodes seen, over all walks
}

// maxFinderWork bounds the walks over a hostile template, which could take quadratic time.
const maxFinderWork = 2_000_000

func (f *finder) visit(ns []node, each func(node)) {
	if f.work > maxFinderWork {
		f.odd = true
		return
	}
	visit(ns, func(n node) {
		f.work++
		each(n)
	})
}

func isVar(n node, name string) bool {
	v, ok := n.(*nameExpr)
	return ok && v.name == name
}

// isVarOrElems matches a variable, or its attribute key where one is given, seen through filters, tests and slices.
func isVarOrElems(n node, name, key string) bool {
	for {
		switch e := n.(type) {
		case *filterExpr:
			if e.in == nil {
				return false
			}
			n = e.in
			continue
		case *testExpr:
			n = e.in
			continue
		case *sliceExpr:
			n = e.obj
			continue
		}
		break
	}
	if key == "" {
		return isVar(n, name)
	}
	switch e := n.(type) {
	case *attrExpr:
		return e.name == key && isVar(e.obj, name)
	case *itemExpr:
		c, ok := e.key.(*constExpr)
		return ok && c.v == String(key) && isVar(e.obj, name)
	}
	return false
}

// aliases gives a variable and those that are assigned from it.
func (f *finder) aliases(name string) []string {
	names := []string{name}
	seen := map[string]bool{name: true}
	for queue := []string{name}; len(queue) > 0; queue = queue[1:] {
		f.visit(f.root, func(n node) {
			s, ok := n.(*setStmt)
			if !ok || !isVarOrElems(s.val, queue[0], "") {
				return
			}
			to, ok := s.to.(*nameTarget)
			if !ok {
				f.odd = true
			} else if !seen[to.name] {
				seen[to.name] = true
				names = append(names, to.name)
				queue = append(queue, to.name)
			}
		})
	}
	return names
}

// messageNames gives the loop variables over messages.
func (f *finder) messageNames() []string {
	var out []string
	lists := f.aliases("messages")
	f.loops(f.root, func(s *forStmt) {
		for _, l := range lists {
			if isVarOrElems(s.iter, l, "") {
				if to, ok := s.to.(*nameTarget); ok {
					out = append(out, to.name)
				} else {
					f.odd = true
				}
				return
			}
		}
	})
	return out
}

func (f *finder) loops(ns []node, each func(*forStmt)) {
	f.visit(ns, func(n node) {
		if s, ok := n.(*forStmt); ok {
			each(s)
		}
	})
}

func (f *finder) loopsOverContent() bool {
	messages := f.messageNames()
	if f.odd {
		return false
	}
	isContent := func(n node) bool {
		for _, m := range messages {
			if isVarOrElems(n, m, "content") {
				return true
			}
		}
		return false
	}
	params := map[*forStmt]map[string]bool{} // loops inside macros, with the macro's parameters that are given content
	f.visit(f.root, func(n node) {
		m, ok := n.(*macroStmt)
		if !ok {
			return
		}
		given := f.contentParams(m.def, isContent)
		f.loops(m.def.nodes(), func(s *forStmt) {
			if _, inMacro := params[s]; !inMacro || len(given) > 0 {
				params[s] = given
			}
		})
	})
	found := false
	f.loops(f.root, func(s *forStmt) {
		if found || f.odd {
			return
		}
		hit := isContent(s.iter)
		if name, ok := s.iter.(*nameExpr); ok && !hit {
			given, inMacro := params[s]
			hit = given[name.name] || !inMacro && name.name == "content"
		}
		if hit {
			if _, ok := s.to.(*nameTarget); ok {
				found = true
			} else {
				f.odd = true
			}
		}
	})
	return found
}

// contentParams gives the parameters of a macro that some call gives a message's content.
func (f *finder) contentParams(def *macroDef, isContent func(node) bool) map[string]bool {
	given := map[string]bool{}
	f.visit(f.root, func(n node) {
		c, ok := n.(*callExpr)
		if !ok || !isVar(c.fn, def.name) {
			return
		}
		for i, a := range c.args.pos {
			if i < len(def.params) && isContent(a) {
				given[def.params[i].name] = true
			}
		}
		for i, name := range c.args.names {
			for _, p := range def.params {
				if p.name == name && isContent(c.args.kw[i]) {
					given[name] = true
				}
			}
		}
	})
	return given
}
