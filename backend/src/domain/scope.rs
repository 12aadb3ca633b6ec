//! The scope of a webhook: the links whose events it receives.

use serde::Deserialize;

use super::change::Change;
use super::conflict::Conflict;

/// The links whose events a webhook receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) kind: ScopeKind,
    /// The ids of the links or folders.
    pub(crate) ids: Vec<String>,
}

/// The kinds of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ScopeKind {
    /// All links of the workspace.
    Workspace,
    /// The links in some folders.
    Folders,
    /// Some links.
    Links,
}

/// The fields of a scope in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScopeInput {
    pub(crate) kind: Change<ScopeKind>,
    pub(crate) link_ids: Change<Vec<String>>,
    pub(crate) folder_ids: Change<Vec<String>>,
}

impl ScopeKind {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Workspace, Self::Folders, Self::Links].into_iter().find(|kind| kind.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Folders => "folders",
            Self::Links => "links",
        }
    }
}

impl Scope {
    pub(crate) const WORKSPACE: Self = Self { kind: ScopeKind::Workspace, ids: Vec::new() };

    /// The ids of the links or folders, if the scope is of this kind.
    pub(crate) fn ids_of(&self, kind: ScopeKind) -> &[String] {
        if self.kind == kind { &self.ids } else { &[] }
    }
}

impl ScopeInput {
    /// The scope of a webhook that has the scope `present`.
    pub(crate) fn applied_to(&self, present: &Scope) -> Result<Scope, Conflict> {
        let kind = match self.kind {
            Change::Set(kind) => kind,
            Change::Clear => ScopeKind::Workspace,
            Change::Keep => present.kind,
        };
        let given = [
            ("linkIds", ScopeKind::Links, &self.link_ids),
            ("folderIds", ScopeKind::Folders, &self.folder_ids),
        ];
        let mut scope = Scope { kind, ids: Vec::new() };
        for (field, of_kind, change) in given {
            let ids = match change {
                Change::Set(ids) => ids.as_slice(),
                Change::Keep if kind == of_kind => present.ids_of(kind),
                Change::Keep | Change::Clear => &[],
            };
            match (kind == of_kind, ids.is_empty()) {
                (true, true) => return Err(Conflict::NoIds(field)),
                (false, false) => return Err(Conflict::OtherScope(field, of_kind.name())),
                (true, false) => scope.ids = ids.to_vec(),
                (false, true) => {}
            }
        }
        Ok(scope)
    }
}
