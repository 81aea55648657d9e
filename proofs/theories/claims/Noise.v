(** Known mechanics, unknown noise (Theorem N): one visit may count in several rows, each about the law of a class of labels.
    Which rows a visit counts in depends on the place that is visited alone, never on the outcome. *)
Require Import Reals Lra Lia List Arith Bool Classical.
From EBPI Require Import Sums Model Gap Pairs Dual Tree Mixture Main Boxes.
Import ListNotations.
Open Scope R_scope.

Section Noise.
Variable K : nat -> nat.                  (* labels of each place *)
Variable p : nat -> nat -> R.             (* their law *)
Hypothesis Hp : forall i, simplex (K i) (p i).
Variable strat : history -> nat.          (* the place that is visited next *)

Variable rows : nat.
Variable feeds : nat -> nat -> bool.      (* row, place *)
Variable cls : nat -> nat -> nat -> nat.  (* row, place, label: the class of the label *)
Variable classes : nat -> nat.
Variable q : nat -> nat -> R.             (* the law of the classes of a row *)
Hypothesis Hcls : forall r i j, (r < rows)%nat -> feeds r i = true -> (j < K i)%nat -> (cls r i j < classes r)%nat.
(** The declaration: wherever it is fed, a row has one and the same law. *)
Hypothesis Hq : forall r i c, (r < rows)%nat -> feeds r i = true -> (c < classes r)%nat ->
  rsum (K i) (fun j => if Nat.eqb c (cls r i j) then p i j else 0) = q r c.

(** The classes that were seen in a row, the latest first. *)
Fixpoint seen_classes (r : nat) (h : history) : list nat :=
  match h with
  | [] => []
  | (i, j) :: h' => if feeds r i then cls r i j :: seen_classes r h' else seen_classes r h'
  end.

Lemma class_pos r i j : (r < rows)%nat -> feeds r i = true -> (j < K i)%nat -> 0 < p i j -> 0 < q r (cls r i j).
Proof.
  intros Lr F L P. rewrite <- (Hq r i _ Lr F (Hcls r i j Lr F L)). apply Rlt_le_trans with (1 := P).
  pose proof (rsum_term (K i) (fun j' => if Nat.eqb (cls r i j) (cls r i j') then p i j' else 0) j) as T. cbv beta in T.
  rewrite Nat.eqb_refl in T. apply T; auto.
  intros j' L'. destruct (Nat.eqb _ _); [apply Hp; auto|lra].
Qed.

Lemma seen_possible r h : (r < rows)%nat -> possible K p h ->
  forall c, In c (seen_classes r h) -> (c < classes r)%nat /\ 0 < q r c.
Proof.
  intros Lr. induction h as [|[i j] h IH]; intros P c; simpl; [tauto|].
  assert (P' : possible K p h) by (intros a b F; apply P; right; auto).
  destruct (P i j (or_introl eq_refl)) as [L Pj].
  destruct (feeds r i) eqn:F; [|apply IH; auto].
  intros [<-|I]; [split; [apply Hcls; auto|apply class_pos; auto]|apply IH; auto].
Qed.

Lemma like_seen_pos r h : (r < rows)%nat -> possible K p h -> 0 < like (q r) (seen_classes r h).
Proof.
  intros Lr P. assert (A := seen_possible r h Lr P). induction (seen_classes r h) as [|c o IH]; simpl; [lra|].
  apply Rmult_lt_0_compat; [apply A; left; auto|apply IH; intros; apply A; right; auto].
Qed.

Variable delta : nat -> R.
Hypothesis Hdelta : forall r, (r < rows)%nat -> 0 < delta r.
Variable Q : nat -> list nat -> R.
Hypothesis HQ : forall r, (r < rows)%nat -> coding (classes r) (Q r) /\ forall o, 0 < Q r o.

Definition wealth (r : nat) (h : history) : R := Q r (seen_classes r h) / like (q r) (seen_classes r h).

Lemma wealth_fair r : (r < rows)%nat -> fair K p strat (wealth r).
Proof.
  intros Lr. destruct (HQ r Lr) as ((Q1 & Q0 & QS) & _). split; [|split].
  - unfold wealth. simpl. lra.
  - intros h P. apply Rmult_le_pos; [apply Q0|]. left. apply Rinv_0_lt_compat, like_seen_pos; auto.
  - intros h P. unfold wealth. simpl seen_classes. set (i := strat h).
    destruct (feeds r i) eqn:F.
    + set (o := seen_classes r h). assert (PL : 0 < like (q r) o) by (apply like_seen_pos; auto).
      assert (Nq : forall c, (c < classes r)%nat -> 0 <= q r c).
      { intros c Lc. rewrite <- (Hq r i c Lr F Lc). apply rsum_nonneg. intros j L. destruct (Nat.eqb c _); [apply Hp; auto|lra]. }
      rewrite (rsum_group (classes r) (K i) (cls r i) (p i) (fun c => Q r (c :: o) / like (q r) (c :: o))) by (intros; apply Hcls; auto).
      apply Rle_trans with (rsum (classes r) (fun c => / like (q r) o * Q r (c :: o))).
      * apply rsum_le. intros c Lc. rewrite (Hq r i c Lr F Lc). simpl like. destruct (Nq c Lc) as [Pc|Pc].
        -- right. field. split; apply Rgt_not_eq; auto.
        -- rewrite <- Pc at 1. rewrite Rmult_0_l. apply Rmult_le_pos; [left; apply Rinv_0_lt_compat; auto|apply Q0].
      * rewrite rsum_scal. unfold Rdiv. rewrite Rmult_comm. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto|apply QS].
    + right. rewrite (rsum_ext _ _ (fun j => Q r (seen_classes r h) / like (q r) (seen_classes r h) * p i j)) by (intros; lra).
      rewrite rsum_scal. destruct (Hp i) as [_ ->]. lra.
Qed.

(** Theorem N: the probability that some row ever leaves its ball is at most the sum of the delta. *)
Theorem noise_event (bad : history -> bool) :
  (forall h, bad h = true -> exists r, (r < rows)%nat /\
     ~ ball (classes r) (cnt (seen_classes r h))
         (ln (/ delta r) + regret (classes r) (cnt (seen_classes r h)) (ln (Q r (seen_classes r h)))) (q r)) ->
  (forall r, (r < rows)%nat -> simplex (classes r) (q r)) ->
  forall T, Prob K p strat T (ever bad) <= rsum rows delta.
Proof.
  intros HB Sq T. apply (union_fair K p Hp strat rows delta wealth bad).
  - intros r Lr. split; [left; auto|apply wealth_fair; auto].
  - intros h P B. destruct (HB h B) as (r & Lr & NB). exists r. split; [auto|].
    apply Rnot_lt_le. intros F. apply NB. apply in_ball; auto; [apply seen_possible; auto|apply HQ; auto].
Qed.
End Noise.

(** *** Claims on the event of Theorem N, by Theorem S: the rows of M are places, and the outcomes of a row are labels. *)
Section Claims.
Variable M : mdp.
Variable rows : nat.
Variable feeds : nat -> nat -> bool.
Variable cls : nat -> nat -> nat -> nat.
Variable classes : nat -> nat.
Hypothesis Hcls : forall r i j, (r < rows)%nat -> feeds r i = true -> (j < K M i)%nat -> (cls r i j < classes r)%nat.
Variable delta : nat -> R.
Hypothesis Hdelta : forall r, (r < rows)%nat -> 0 < delta r.
Variable Q : nat -> list nat -> R.
Hypothesis HQ : forall r, (r < rows)%nat -> coding (classes r) (Q r) /\ forall o, 0 < Q r o.

Definition noise_counts (h : history) (r : nat) : nat -> nat := cnt (seen_classes feeds cls r h).
Definition noise_radius (h : history) (r : nat) : R :=
  ln (/ delta r) + regret (classes r) (noise_counts h r) (ln (Q r (seen_classes feeds cls r h))).

(** The declaration: wherever it is fed, a row has one and the same law q. *)
Definition tied (p q : nat -> nat -> R) : Prop := forall r, (r < rows)%nat -> simplex (classes r) (q r) /\
  forall i c, feeds r i = true -> (c < classes r)%nat ->
    rsum (K M i) (fun j => if Nat.eqb c (cls r i j) then p i j else 0) = q r c.

(** The kernels that the data leave: those of a declared noise whose laws lie in the balls. *)
Definition noise_set (h : history) (p : nat -> nat -> R) : Prop :=
  kernel M p /\ exists q, tied p q /\ forall r, (r < rows)%nat -> ball (classes r) (noise_counts h r) (noise_radius h r) (q r).

(** What is checked of a mean at a place (Theorem R): the dual bound over the ball of a row that it feeds, or all outcomes. *)
Definition up_noise (h : history) (i : nat) (f : nat -> R) (u : R) : Prop :=
  (forall j, (j < K M i)%nat -> f j <= u) \/
  exists r g, (r < rows)%nat /\ feeds r i = true /\ (forall j, (j < K M i)%nat -> f j <= g (cls r i j)) /\
    bound_ok (classes r) (noise_counts h r) (noise_radius h r) g u.

Theorem up_noise_sound h p i f u : noise_set h p -> up_noise h i f u -> mean (K M i) (p i) f <= u.
Proof.
  intros (Hp & q & T & B) [A|(r & g & Lr & F & D & OK)].
  - rewrite <- (mean_const (K M i) (p i) u) by apply Hp. apply mean_le; [apply Hp|auto].
  - apply Rle_trans with (mean (K M i) (p i) (fun j => g (cls r i j))); [apply mean_le; [apply Hp|auto]|].
    apply Rle_trans with (mean (classes r) (q r) g); [right|apply (bound_ok_sound _ _ _ _ _ OK); apply B; auto].
    unfold mean. rewrite (rsum_group (classes r) (K M i) (cls r i) (p i) g) by (intros; apply Hcls; auto).
    apply rsum_ext. intros c Lc. destruct (T r Lr) as [_ E]. rewrite (E i c F Lc). reflexivity.
Qed.

(** The error probability: one policy, certified in every leaf of a tree of cuts, for all kernels that the data leave. *)
Theorem main_noise p q (strat : history -> nat) (bad : history -> bool) : kernel M p -> tied p q ->
  (forall h, bad h = true -> exists c t, c_beta c <> 0 /\ legal M (c_pi c) /\ ~ claim_true M p c /\
     in_every_leaf M t (noise_set h) (leaf_ok M c)) ->
  forall T, Prob (K M) p strat T (ever bad) <= rsum rows delta.
Proof.
  intros Hp Tp HA T.
  apply (noise_event (K M) p Hp strat rows feeds cls classes q) with (Q := Q); auto.
  - intros r i c Lr F Lc. apply (Tp r Lr); auto.
  - intros h B. destruct (HA h B) as (c & t & Nb & Lg & F & OK).
    apply NNPP. intros N. apply F. apply (leaves_sound M t (noise_set h)); auto.
    split; [auto|]. exists q. split; [auto|]. intros r Lr. apply NNPP. intros NB. apply N. exists r. auto.
  - intros r Lr. apply (Tp r Lr).
Qed.
End Claims.
